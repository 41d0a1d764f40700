"""What the command `hvd-p3 doctor` finds out, and what it makes of it."""
