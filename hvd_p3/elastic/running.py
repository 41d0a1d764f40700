"""`run`: gives all ranks the same state, then runs the training function."""

import functools
import os

from horovod.common.exceptions import HorovodInternalError

from hvd_p3 import process


def run(func):
    """Makes a training function bring its state to all ranks before it starts.

    In a job whose number of ranks stays as it is, `func` runs once. If one of Horovod's collectives
    fails in it, the state is restored to its last commit, and the error goes on to the caller.

    Args:
        func: Function whose first argument is a state: `KerasState`, `TensorFlowState` or
            `ObjectState`.

    Returns:
        A function with the arguments and the result of `func`. It raises `ValueError` if hvd_p3 is
        not initialised, and `RuntimeError` in a job of `horovodrun --min-np` or `--host-discovery`.

    Example:

    ```python
    @hvd_p3.elastic.run
    def train(state):
        model.fit(dataset, epochs=24 - state.epoch, callbacks=[
            hvd_p3.elastic.UpdateEpochStateCallback(state),
            hvd_p3.elastic.CommitStateCallback(state, batches_per_commit=100),
        ])

    train(hvd_p3.elastic.KerasState(model, epoch=0))
    ```
    """

    @functools.wraps(func)
    def run_with_state(state, *args, **kwargs):
        process.current()
        if os.environ.get("HOROVOD_ELASTIC") == "1":
            raise RuntimeError(
                "hvd_p3 does not support jobs whose hosts come and go yet. Launch with a fixed "
                "number of ranks: horovodrun -np N python train.py"
            )
        state.sync()
        try:
            return func(state, *args, **kwargs)
        except HorovodInternalError:
            state.restore()
            raise

    return run_with_state
