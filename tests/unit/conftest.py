"""One rank in the test's own process, with and without the engine in the way."""

import contextlib
import types

import horovod.tensorflow as horovod
import pytest
import tensorflow as tf

from hvd_p3 import _engine, configuration, process

# A second device, for models whose variables are not all on one.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], 2 * [tf.config.LogicalDeviceConfiguration()]
)


@pytest.fixture(scope="session", autouse=True)
def _horovod_of_one_rank():
    # One rank needs no MPI, whose start takes a second and fails now and then on a busy machine.
    without_mpi = {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in without_mpi.items():
            environment.setenv(name, value)
        horovod.init()
    yield
    horovod.shutdown()


@contextlib.contextmanager
def _initialized(config, reduction):
    gate = _engine.start_single_rank(config.slice_bytes, config.credit_bytes, config.trace)
    process._process = process._Process(config, reduction)
    try:
        yield types.SimpleNamespace(gate=gate)
    finally:
        gate.hold(0)
        _engine.stop(5.0)
        process._process = None


@pytest.fixture
def one_rank():
    """hvd_p3 as a program on one rank sees it."""
    with _initialized(configuration.Configuration(), process.NOT_NEEDED) as engine:
        yield engine


@pytest.fixture
def gated_engine():
    """One rank whose gradients go through the engine all the same, and whose slices can be held.

    `gated_engine.gate.hold(n)` keeps slices of n elements from completing; 0 lets all pass.
    """
    # So short that the layers of the models in these tests do not share a slice.
    config = configuration.Configuration(trace=True, slice_bytes=1200)
    with _initialized(config, process.ENGINE) as engine:
        yield engine


@pytest.fixture
def fusing_engine():
    """As `gated_engine`, but with slices that hold all gradients of a small model."""
    with _initialized(configuration.Configuration(trace=True), process.ENGINE) as engine:
        yield engine
