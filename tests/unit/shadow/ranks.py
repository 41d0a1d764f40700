"""Several ranks as threads of one process."""

import threading
import traceback

from hvd_p3.shadow.channel import in_process_channels

_PATIENCE_S = 60


def run(size, program, channels=None):
    """Runs `program(channel)` on each rank; returns the results, by rank.

    Args:
        size: int.
        program: Function of a `Channel`.
        channels: Optional list of `Channel`.
    """
    channels = channels or in_process_channels("test", size)
    results = [None] * size
    errors = []

    def work(rank):
        try:
            results[rank] = program(channels[rank])
        except BaseException:
            errors.append(f"on rank {rank}:\n{traceback.format_exc()}")

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE_S)
    assert not errors, "\n".join(errors)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results
