"""How the planner says that it cannot go on."""


class PlannerError(ValueError):
    """Its message is one line for the user: what is wrong, what was received, and what to do."""
