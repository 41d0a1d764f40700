"""Makes the metrics of an epoch those of all ranks."""

import keras
import tensorflow as tf

from hvd_p3 import collectives, process


class MetricAverageCallback(keras.callbacks.Callback):
    """Averages the logged metrics over all ranks at the end of each epoch.

    Put it before callbacks that read the metrics, such as ReduceLROnPlateau or a logger. All ranks
    must log the same metrics.

    Args:
        device: str. TensorFlow device of the operation.

    Raises:
        ValueError: At the end of an epoch, if ranks do not log the same metrics.

    Example:

    ```python
    model.fit(x, y, callbacks=[hvd_p3.callbacks.MetricAverageCallback()])
    ```
    """

    def __init__(self, device=""):
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch, logs=None):
        if not logs or process.size() == 1:
            return
        names = sorted(name for name, value in logs.items() if _is_number(value))
        by_rank = collectives.allgather_object(names, name="hvd_p3.metric_names")
        if any(other != names for other in by_rank):
            raise ValueError(
                "MetricAverageCallback needs the same metrics on all ranks. Received: "
                + "; ".join(f"{other} on rank {rank}" for rank, other in enumerate(by_rank))
            )
        values = tf.constant([float(logs[name]) for name in names], tf.float64)
        averages = collectives.allreduce(
            values,
            op=collectives.Average,
            name="hvd_p3.metric_average",
            device_dense=self.device,
        )
        logs.update(zip(names, averages.numpy().tolist(), strict=True))


def _is_number(value):
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
