"""Keras callbacks for distributed training."""

from hvd_p3.callbacks.best_model_checkpoint import BestModelCheckpoint
from hvd_p3.callbacks.broadcast import BroadcastGlobalVariablesCallback
from hvd_p3.callbacks.learning_rate_schedule import LearningRateScheduleCallback
from hvd_p3.callbacks.learning_rate_warmup import LearningRateWarmupCallback
from hvd_p3.callbacks.metric_average import MetricAverageCallback
from hvd_p3.callbacks.model_checkpoint import ModelCheckpoint
from hvd_p3.callbacks.p3 import P3Callback

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "ModelCheckpoint",
    "P3Callback",
]
