"""What no scheme that trains exactly can beat: lower bounds of the time of a step."""


def communication_s(size_bytes, hosts, bandwidth):
    """Seconds that an all-reduce keeps each link busy: every rank sends and receives
    `2 (n - 1) / n` of the data (Patarasuk and Yuan, 2009).

    Args:
        size_bytes: int. Of all gradients.
        hosts: int, the number of ranks.
        bandwidth: float. Of a link, in bytes per second.
    """
    return 2 * (hosts - 1) / hosts * size_bytes / bandwidth


def step_s(compute_s, communication_s):
    """The bound that results are compared with: computation and communication in parallel."""
    return max(compute_s, communication_s)


def scheduled_step_s(layers):
    """Seconds of a step with the best order and no overhead, where a layer's forward pass waits for
    that layer's gradients of the step before.

    Higher than `step_s` where much of the communication can only start when the backward pass ends
    and has to end before the forward pass starts, as with a large embedding in front.

    Args:
        layers: List of `(communication_s, forward_s, backward_s)` in the order of the forward pass.

    Returns:
        float.
    """
    left = [0.0] * len(layers)  # seconds of communication of gradients that are ready
    now = 0.0
    ends = []

    def advance(seconds):
        nonlocal now
        now += seconds
        for index in range(len(layers)):
            sent = min(left[index], seconds)
            left[index] -= sent
            seconds -= sent

    for _ in range(4):  # the second step is like all that follow
        for index, (_, forward_s, _) in enumerate(layers):
            if left[index] > 0:
                advance(sum(left[: index + 1]))
            advance(forward_s)
        for index in reversed(range(len(layers))):
            communication, _, backward_s = layers[index]
            advance(backward_s)
            left[index] += communication
        ends.append(now)
    return ends[-1] - ends[-2]
