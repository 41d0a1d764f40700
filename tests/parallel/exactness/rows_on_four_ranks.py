"""The exactness table: rows that are run on four ranks too."""

from rows_dtypes import row_sparse_rows_exchanged
from rows_loops import row_several_steps_per_execution
from rows_models import row_shared_layer
from rows_optimizers import row_learning_rate_changed_at_each_batch, row_nadam
from table import run_row as run_check

PREFIX = "row_"

__all__ = [
    "PREFIX",
    "row_learning_rate_changed_at_each_batch",
    "row_nadam",
    "row_several_steps_per_execution",
    "row_shared_layer",
    "row_sparse_rows_exchanged",
    "run_check",
]
