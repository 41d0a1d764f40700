"""Keras callbacks for distributed training."""

from hvd_p3.callbacks.broadcast import BroadcastGlobalVariablesCallback
from hvd_p3.callbacks.metric_average import MetricAverageCallback
from hvd_p3.callbacks.p3 import P3Callback

__all__ = ["BroadcastGlobalVariablesCallback", "MetricAverageCallback", "P3Callback"]
