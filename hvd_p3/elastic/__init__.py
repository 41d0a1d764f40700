"""Horovod's elastic API for Keras 3, for jobs whose number of ranks stays as it is.

State that is committed, restored and brought to all ranks, and `run`. Jobs whose hosts come and go
(`horovodrun --min-np`) are not supported yet.
"""

from hvd_p3.elastic.callbacks import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)
from hvd_p3.elastic.running import run
from hvd_p3.elastic.state import KerasState, ObjectState, TensorFlowState

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "ObjectState",
    "TensorFlowState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
