"""hvd_p3: Horovod with priority-scheduled gradients for Keras 3.

Use it as you use Horovod:

```python
import hvd_p3 as hvd

hvd.init()
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size()))
model.compile(optimizer, loss="mse")
model.fit(x, y, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                           hvd.callbacks.P3Callback()])
```
"""

from hvd_p3 import _environment

_environment.check()

from hvd_p3 import callbacks, data, elastic, ops, shadow  # noqa: E402
from hvd_p3._build_info import HVD_P3_VERSION as __version__  # noqa: E402
from hvd_p3.capabilities import (  # noqa: E402
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    is_homogeneous,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from hvd_p3.collectives import (  # noqa: E402
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather,
    allgather_object,
    allreduce,
    alltoall,
    broadcast,
    broadcast_global_variables,
    broadcast_object,
    broadcast_variables,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    reducescatter,
)
from hvd_p3.compression import Compression  # noqa: E402
from hvd_p3.configuration import Configuration  # noqa: E402
from hvd_p3.gradient_tape import (  # noqa: E402
    DistributedGradientTape,
    PartialDistributedGradientTape,
)
from hvd_p3.loading import load_model  # noqa: E402
from hvd_p3.optimizer import DistributedOptimizer, PartialDistributedOptimizer  # noqa: E402
from hvd_p3.process import (  # noqa: E402
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    statistics,
    take_trace,
)
from hvd_p3.process_sets import (  # noqa: E402
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from hvd_p3.settling import settle  # noqa: E402
from hvd_p3.sync_batch_normalization import SyncBatchNormalization  # noqa: E402
from hvd_p3.timeline import start_timeline, stop_timeline  # noqa: E402

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "Configuration",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "__version__",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "data",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "ops",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "settle",
    "shadow",
    "shutdown",
    "size",
    "start_timeline",
    "statistics",
    "stop_timeline",
    "take_trace",
]
