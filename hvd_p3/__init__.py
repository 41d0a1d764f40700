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

from hvd_p3 import callbacks, ops  # noqa: E402
from hvd_p3._build_info import HVD_P3_VERSION as __version__  # noqa: E402
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
    broadcast,
    broadcast_object,
    broadcast_variables,
)
from hvd_p3.configuration import Configuration  # noqa: E402
from hvd_p3.gradient_tape import DistributedGradientTape  # noqa: E402
from hvd_p3.optimizer import DistributedOptimizer  # noqa: E402
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
from hvd_p3.settling import settle  # noqa: E402
from hvd_p3.timeline import start_timeline, stop_timeline  # noqa: E402

__all__ = [
    "Adasum",
    "Average",
    "Configuration",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Product",
    "Sum",
    "__version__",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "cross_rank",
    "cross_size",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "ops",
    "rank",
    "settle",
    "shutdown",
    "size",
    "start_timeline",
    "statistics",
    "stop_timeline",
    "take_trace",
]
