"""Overlap itself: what runs while a reduction is held back, and when gradients reach the queue."""

import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import hvd_p3
from hvd_p3 import _engine, notices, process
from hvd_p3.overlap.late_update import LateUpdates
from hvd_p3.variables import resource_of

_PATIENCE_S = 30.0
_FIRST, _SECOND = 16, 17  # units of the two layers
_SECOND_LAYER_ELEMENTS = _FIRST * _SECOND + _SECOND  # kernel and bias share a slice


class _Probe(keras.layers.Layer):
    """Calls Python functions when the forward and the backward pass come by."""

    def __init__(self, forward=None, backward=None):
        super().__init__()
        self._on_forward = forward
        self._on_backward = backward

    def call(self, inputs):
        @tf.custom_gradient
        def probed(x):
            def gradient(upstream):
                return _call_then(self._on_backward, upstream)

            return _call_then(self._on_forward, x), gradient

        return probed(inputs)


def _call_then(function, tensor):
    if function is None:
        return tf.identity(tensor)

    def run(value):
        function()
        return value

    result = tf.numpy_function(run, [tensor], tensor.dtype)
    return tf.ensure_shape(result, tensor.shape)


def _wait_until(condition):
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def _overlapped_model(probe, after=None, before_overlap=lambda model: None, **options):
    layers = [keras.layers.Dense(_FIRST), probe, keras.layers.Dense(_SECOND)]
    model = keras.Sequential([keras.Input((4,)), *layers, *([after] if after else [])])
    before_overlap(model)
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), **options)
    model.compile(optimizer, loss="mse")
    model.optimizer.build(model.trainable_variables)
    assert model.optimizer.turn_overlap_on() is None
    return model


def _batch():
    return np.ones((2, 4), "float32"), np.ones((2, _SECOND), "float32")


def _overlapped_variable():
    """A variable of three 8.0, and an overlapped optimizer with which `_halve` halves it."""
    variable = keras.Variable(np.full(3, 8.0, "float32"))
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.25))
    optimizer.build([variable])
    assert optimizer.turn_overlap_on() is None
    return variable, optimizer


def _peek(variable):
    """What is in a variable's memory, without settling it."""
    handle = resource_of(variable._value)
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype).numpy()


def _halve(variable, optimizer):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * variable)
    optimizer.apply([tape.gradient(loss, variable.value)], [variable])


def test_step_that_fails_in_its_backward_pass_leaves_nothing_to_wait_for(fusing_engine):
    """The gradients of both layers are one message: none is pushed if not all are computed."""
    failures = ["once"]

    def fail_once():
        if failures:
            raise ValueError(failures.pop())

    model = _overlapped_model(_Probe(backward=fail_once))
    before = model.get_weights()
    with pytest.raises(tf.errors.OpError, match="once"):
        model.train_on_batch(*_batch())
    reader = threading.Thread(target=model.get_weights)
    reader.start()
    reader.join(_PATIENCE_S)
    assert not reader.is_alive(), "reading the weights waits for a gradient that never comes"
    for variable, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(variable, value)
    model.train_on_batch(*_batch())
    assert any((a != b).any() for a, b in zip(model.get_weights(), before, strict=True))


def test_first_layer_runs_in_fit_while_a_later_layer_is_on_the_wire(gated_engine):
    """Keras's `fit` calls the training step from another traced function, which must not wait for
    all variables of the step."""
    passed_first, passed_second = [], []
    model = _overlapped_model(
        _Probe(forward=lambda: passed_first.append(time.monotonic())),
        after=_Probe(forward=lambda: passed_second.append(time.monotonic())),
    )
    data = tf.data.Dataset.from_tensors(_batch()).repeat()
    gated_engine.gate.hold(_SECOND_LAYER_ELEMENTS)
    training = threading.Thread(
        target=model.fit, args=(data,), kwargs={"steps_per_epoch": 2, "verbose": 0}
    )
    training.start()
    _wait_until(lambda: len(passed_first) == 2)
    time.sleep(0.1)
    assert len(passed_second) == 1, "the second layer ran with weights that were not updated"
    gated_engine.gate.hold(0)
    training.join(_PATIENCE_S)
    assert len(passed_second) == 2


def test_first_layer_runs_while_a_later_layer_is_on_the_wire(gated_engine):
    passed_first, passed_second = [], []
    model = _overlapped_model(
        _Probe(forward=lambda: passed_first.append(time.monotonic())),
        after=_Probe(forward=lambda: passed_second.append(time.monotonic())),
    )
    model.train_on_batch(*_batch())
    hvd_p3.settle(model)  # the gate must not hold what the first step has pushed
    gated_engine.gate.hold(_SECOND_LAYER_ELEMENTS)
    model.train_on_batch(*_batch())  # returns although the second layer's reduction is held
    assert len(passed_second) == 2

    third_step = threading.Thread(target=model.train_on_batch, args=_batch())
    third_step.start()
    _wait_until(lambda: len(passed_first) == 3)
    time.sleep(0.1)
    assert len(passed_second) == 2, "the second layer ran with weights that were not updated"
    assert third_step.is_alive()
    waited_before = hvd_p3.statistics()["forward_wait_seconds"]
    time.sleep(0.2)
    gated_engine.gate.hold(0)
    third_step.join(_PATIENCE_S)
    assert len(passed_second) == 3
    assert hvd_p3.statistics()["forward_wait_seconds"] - waited_before >= 0.2


@pytest.mark.parametrize("passes", [1, 2])
def test_gradient_is_queued_before_the_layer_in_front_has_run_backward(gated_engine, passes):
    submitted, earlier_passes = [], [None] * (passes - 1)

    def wait_for_second_layer():
        if earlier_passes:
            return earlier_passes.pop()

        def second_layer_is_submitted():
            events = hvd_p3.take_trace()
            submitted.extend(each["tensor"] for each in events if each["kind"] == "submitted")
            return any("dense+1" in tensor for tensor in submitted)

        _wait_until(second_layer_is_submitted)
        assert not any(tensor.endswith("dense/kernel") for tensor in submitted)

    model = _overlapped_model(
        _Probe(backward=wait_for_second_layer), backward_passes_per_step=passes
    )
    hvd_p3.take_trace()
    for _ in range(passes - 1):
        model.train_on_batch(*_batch())
        assert not hvd_p3.take_trace()
    model.train_on_batch(*_batch())
    assert submitted


@pytest.mark.parametrize(
    "read",
    [
        "get_weights",
        "numpy",
        "convert",
        "call",
        "function",
        "function_traced_before",
        "function_of_a_function_traced_before",
        "concrete_function",
        "raw_variable",
        "raw_op",
        "arithmetic",
        "eager_op_on_raw_variable",
        "repr",
    ],
)
def test_every_read_settles_the_variable_first(gated_engine, read):
    kept = {}

    def keep(each):
        """What a program may hold since before overlapped mode."""
        raw = each.layers[0].kernel.value
        traced = tf.function(lambda: raw + 0.0)
        traced()
        kept[each] = raw, traced, traced.get_concrete_function()

    model = _overlapped_model(_Probe(), before_overlap=keep)
    plain = keras.models.clone_model(
        model,
        clone_function=lambda layer: (
            _Probe() if isinstance(layer, _Probe) else type(layer).from_config(layer.get_config())
        ),
    )
    plain.set_weights(model.get_weights())
    keep(plain)
    plain.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss="mse")
    kernel = model.layers[0].kernel
    readers = {
        "get_weights": lambda each: each.get_weights()[0],
        "numpy": lambda each: each.layers[0].kernel.numpy(),
        "convert": lambda each: tf.convert_to_tensor(each.layers[0].kernel).numpy(),
        "call": lambda each: each(np.eye(4, dtype="float32")).numpy(),
        "function": lambda each: tf.function(lambda: each.layers[0].kernel + 0.0)().numpy(),
        "function_traced_before": lambda each: kept[each][1]().numpy(),
        "function_of_a_function_traced_before": lambda each: tf.function(
            lambda: kept[each][1]()
        )().numpy(),
        "concrete_function": lambda each: kept[each][2]().numpy(),
        "raw_variable": lambda each: kept[each][0].numpy(),
        "raw_op": lambda each: tf.raw_ops.ReadVariableOp(
            resource=kept[each][0].handle, dtype="float32"
        ).numpy(),
        "arithmetic": lambda each: (each.layers[0].kernel * 2.0).numpy(),
        "eager_op_on_raw_variable": lambda each: tf.transpose(kept[each][0]).numpy(),
        "repr": lambda each: repr(each.layers[0].kernel).partition("value=")[2],
    }
    for _ in range(2):
        model.train_on_batch(*_batch())
        plain.train_on_batch(*_batch())
        stale = _peek(kernel)
        actual, expected = readers[read](model), readers[read](plain)
        if read == "repr":
            assert actual == expected
        else:
            np.testing.assert_array_equal(actual, expected)
        assert not np.array_equal(stale, kernel.numpy()), (
            "no update was pending: nothing was tested"
        )


def test_assignment_comes_after_the_pending_update(gated_engine):
    model = _overlapped_model(_Probe())
    model.train_on_batch(*_batch())
    weights = [np.full_like(each, 0.5) for each in model.get_weights()]
    model.train_on_batch(*_batch())
    model.set_weights(weights)
    for actual, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_momentum_is_settled_when_read(gated_engine):
    model = _overlapped_model(_Probe())
    model.train_on_batch(*_batch())
    momentum = model.optimizer.momentums[0]
    assert not _peek(momentum).any()
    assert momentum.numpy().any()


def test_settle_applies_everything(gated_engine):
    model = _overlapped_model(_Probe())
    model.train_on_batch(*_batch())
    model.optimizer.settle()
    before = [_peek(variable) for variable in model.trainable_variables]
    for settled, variable in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(settled, variable.numpy())


@pytest.mark.parametrize("kind", ["model", "layer", "optimizer", "list", "variable", "raw"])
def test_settle_takes_models_layers_optimizers_and_variables(gated_engine, kind):
    model = _overlapped_model(_Probe())
    kernel = model.layers[0].kernel
    targets = {
        "model": model,
        "layer": model.layers[0],
        "optimizer": model.optimizer,
        "list": model.trainable_variables,
        "variable": kernel,
        "raw": kernel.value,
    }
    model.train_on_batch(*_batch())
    stale = _peek(kernel)
    hvd_p3.settle(targets[kind])
    settled = _peek(kernel)
    assert not np.array_equal(stale, settled)
    np.testing.assert_array_equal(settled, kernel.numpy())


def test_overlap_is_turned_on_before_the_trace_of_a_built_optimizer(gated_engine):
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match=r"optimizer\.build.*built=False"):
        optimizer.turn_overlap_on()
    optimizer.build([keras.Variable([1.0])])
    with pytest.raises(ValueError, match=r"outside of any tf\.function"):
        tf.function(optimizer.turn_overlap_on, autograph=False)()
    assert not optimizer.is_overlapped()


@pytest.mark.parametrize(
    ("reduction", "overlap", "reason"),
    [(process.HOROVOD, True, "Gloo"), (process.ENGINE, False, "HVD_P3_OVERLAP")],
)
def test_overlap_that_cannot_be_says_why(gated_engine, reduction, overlap, reason):
    current = process.current()
    current.reduction = reduction
    current.config = hvd_p3.Configuration(overlap=overlap)
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1))
    optimizer.build([keras.Variable([1.0])])
    assert reason in optimizer.turn_overlap_on()
    assert not optimizer.is_overlapped()


def test_one_rank_has_nothing_to_overlap(one_rank):
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1))
    optimizer.build([keras.Variable([1.0])])
    assert optimizer.turn_overlap_on() == "one rank has nothing to overlap"
    assert not optimizer.is_overlapped()


@pytest.mark.parametrize("wrong", [None, 3, "model", [1.0]])
def test_settle_refuses_other_things(wrong):
    with pytest.raises(TypeError, match="settle needs a Keras model"):
        hvd_p3.settle(wrong)


def test_momentum_of_the_trace_counts_although_it_changed_since(gated_engine):
    model = _overlapped_model(_Probe())
    model.train_on_batch(*_batch())
    model.optimizer.settle()
    momentum = _peek(model.optimizer.momentums[0])
    gradient = -momentum / np.float32(0.1)
    model.optimizer.learning_rate = 0.0  # the next gradient does not matter
    model.train_on_batch(*_batch())
    model.optimizer.momentum = 0.0
    assert gradient.any()
    np.testing.assert_allclose(model.optimizer.momentums[0].numpy(), momentum * 0.9, rtol=1e-6)


def test_functions_traced_with_other_hyper_parameters_do_not_mix(gated_engine):
    variable, optimizer = _overlapped_variable()

    @tf.function
    def halve():
        _halve(variable, optimizer)

    before = tf.function(lambda: variable.value + 0.0)
    before()
    halve()
    optimizer.weight_decay = 0.5
    optimizer._hvd_p3_state.expect_trace_of(halve)  # as after model.compile
    after = tf.function(lambda: variable.value + 0.0)
    for expected, read in ((4.0, after), (2.0, after), (1.0, before), (0.5, after)):
        np.testing.assert_array_equal(read(), np.full(3, expected, "float32"))
        halve()


def test_graph_that_expects_other_hyper_parameters_gets_an_error(gated_engine):
    variable, optimizer = _overlapped_variable()

    @tf.function
    def halve():
        _halve(variable, optimizer)

    halve()
    optimizer.weight_decay = 0.5
    optimizer._hvd_p3_state.expect_trace_of(halve)

    @tf.function
    def halve_and_read():
        halve()
        return variable.value + 0.0

    with pytest.raises(tf.errors.FailedPreconditionError, match=r"hvd_p3\.settle"):
        halve_and_read()
    hvd_p3.settle(variable)
    np.testing.assert_array_equal(variable.numpy(), np.full(3, 2.0, "float32"))


def test_step_that_fails_loses_no_update_and_applies_none_in_part(gated_engine, monkeypatch):
    """TensorFlow runs an update that has begun when another op fails to its end."""
    variable, optimizer = _overlapped_variable()
    apply = LateUpdates.apply

    def slow_apply(updates, index, gradient, context, version):
        def wait(value):
            begun.set()
            time.sleep(0.3)
            return value

        gradient = tf.ensure_shape(tf.numpy_function(wait, [gradient], tf.float32), [3])
        apply(updates, index, gradient, context, version)

    def fail():
        assert begun.wait(_PATIENCE_S)
        raise ArithmeticError("on purpose")

    @tf.function
    def step():
        _halve(variable, optimizer)

    @tf.function
    def failing():
        with tf.control_dependencies([tf.numpy_function(fail, [], tf.float32)]):
            broken = tf.constant(1.0)
        return broken + variable.value

    begun = threading.Event()
    monkeypatch.setattr(LateUpdates, "apply", slow_apply)
    step()
    with pytest.raises(tf.errors.OpError, match="on purpose"):
        failing()
    np.testing.assert_array_equal(variable.numpy(), np.full(3, 4.0, "float32"))


def test_learning_rate_of_the_step_counts_although_it_changed_since(gated_engine):
    model = _overlapped_model(_Probe())
    start = model.get_weights()[0]
    model.optimizer.learning_rate = 0.0
    model.train_on_batch(*_batch())
    model.optimizer.learning_rate = 1000.0
    np.testing.assert_array_equal(model.get_weights()[0], start)


@pytest.mark.parametrize("guarded_read_follows", [False, True])
def test_step_that_uses_a_kept_handle_trains_immediately_and_says_so(
    gated_engine, guarded_read_follows, recwarn
):
    """A program that reads a variable behind the guard's back must not be overlapped."""
    start = np.full(3, 2.0, "float32")
    variable = keras.Variable(start, name=f"kept_{guarded_read_follows}")
    handle = variable.value.handle
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.5))
    optimizer.build([variable])
    assert optimizer.turn_overlap_on() is None

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            tape.watch(handle)
            weights = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            loss = tf.reduce_sum(weights * weights)
            if guarded_read_follows:
                loss += 0.0 * tf.reduce_sum(variable.value)
        optimizer.apply([tape.gradient(loss, handle)], [variable])

    for _ in range(3):
        step()
    np.testing.assert_array_equal(variable.numpy(), np.zeros(3, "float32"))  # w - 0.5 * 2 w
    said = [str(each.message) for each in recwarn if "immediate mode" in str(each.message)]
    assert len(said) == 1
    assert variable.path in said[0]


def test_step_that_uses_raw_variables_and_earlier_functions_is_overlapped(gated_engine, recwarn):
    variable = keras.Variable(np.full(3, 8.0, "float32"))
    raw = variable.value
    square = tf.function(lambda: raw * raw)
    square()
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.125))
    optimizer.build([variable])
    assert optimizer.turn_overlap_on() is None

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(square() + raw * raw)
        optimizer.apply([tape.gradient(loss, raw)], [variable])

    for _ in range(3):
        step()
    assert _peek(variable)[0] == 2.0, "the third update is pending"
    assert raw.numpy()[0] == 1.0
    assert not [each for each in recwarn if "immediate mode" in str(each.message)]


def test_two_steps_in_one_function_are_overlapped(gated_engine, recwarn):
    variable, optimizer = _overlapped_variable()

    @tf.function
    def two_steps():
        for _ in range(2):
            _halve(variable, optimizer)

    two_steps()
    assert _peek(variable)[0] == 4.0, "the second update is pending"
    np.testing.assert_array_equal(variable.numpy(), np.full(3, 2.0, "float32"))
    assert not [each for each in recwarn if "immediate mode" in str(each.message)]


def test_function_that_pushes_reopens_the_guard_in_its_caller(gated_engine):
    """`train` is traced long before `program` calls it between two reads."""
    variable, optimizer = _overlapped_variable()

    @tf.function
    def train():
        _halve(variable, optimizer)

    @tf.function
    def program():
        before = tf.identity(variable.value)
        train()
        between = tf.identity(variable.value)
        tf.cond(before[0] > 0.0, train, lambda: None)
        return before, between, tf.identity(variable.value)

    train()  # 8 -> 4
    assert [value.numpy()[0] for value in program()] == [4.0, 2.0, 1.0]


def test_loop_that_pushes_reads_its_own_updates(gated_engine):
    variable, optimizer = _overlapped_variable()

    @tf.function
    def program():
        before = tf.identity(variable.value)
        for _ in tf.range(3):
            _halve(variable, optimizer)
        return before, tf.identity(variable.value)

    assert [value.numpy()[0] for value in program()] == [8.0, 1.0]


def test_layer_in_a_function_of_its_own_is_overlapped(gated_engine, recwarn):
    class Compiled(keras.layers.Dense):
        @tf.function
        def call(self, inputs):
            return super().call(inputs)

    model = keras.Sequential([keras.Input((4,)), Compiled(3)])
    model.compile(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    callback = hvd_p3.callbacks.P3Callback()
    x = np.ones((4, 4), "float32")
    model.fit(x, x[:, :3], batch_size=2, callbacks=[callback], verbose=0)
    assert model.optimizer.is_overlapped()
    assert not [each for each in recwarn if "immediate mode" in str(each.message)]


@pytest.mark.parametrize("way", ["export", "saved_model"])
def test_exported_program_has_the_right_weights_and_no_trace_of_hvd_p3(gated_engine, tmp_path, way):
    model = _overlapped_model(_Probe())
    model.train_on_batch(*_batch())  # leaves an update pending
    inputs = np.eye(4, dtype="float32")
    if way == "export":
        model.export(tmp_path, verbose=False)
        loaded = tf.saved_model.load(tmp_path)
        outputs = loaded.serve(inputs)
    else:
        module = tf.Module()
        module.variables_of_model = [variable.value for variable in model.variables]
        module.serve = tf.function(
            lambda x: model(x), input_signature=[tf.TensorSpec([None, 4], tf.float32)]
        )
        tf.saved_model.save(module, tmp_path)
        loaded = tf.saved_model.load(tmp_path)
        outputs = loaded.serve(inputs)
    np.testing.assert_allclose(outputs, model(inputs), rtol=1e-6)
    assert b"HvdP3" not in (tmp_path / "saved_model.pb").read_bytes()
    model.train_on_batch(*_batch())  # training goes on


def test_two_optimizers_of_one_variable_apply_in_order(gated_engine):
    variable = keras.Variable(np.full(3, 8.0, "float32"))
    halve, decrement = [
        hvd_p3.DistributedOptimizer(keras.optimizers.SGD(rate)) for rate in (0.25, 1.0)
    ]
    for optimizer in (halve, decrement):
        optimizer.build([variable])
        assert optimizer.turn_overlap_on() is None

    @tf.function
    def alternate():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * variable)
        halve.apply([tape.gradient(loss, variable.value)], [variable])
        decrement.apply([tf.ones([3])], [variable])

    alternate()
    np.testing.assert_array_equal(variable.numpy(), np.full(3, 3.0, "float32"))
    alternate()
    np.testing.assert_array_equal(variable.numpy(), np.full(3, 0.5, "float32"))


def test_update_of_an_earlier_optimizer_is_settled_when_the_next_takes_over(gated_engine):
    model = _overlapped_model(_Probe())
    model.train_on_batch(*_batch())  # leaves updates pending
    before = _peek(model.layers[0].kernel)
    model.compile(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
    model.optimizer.build(model.trainable_variables)
    assert model.optimizer.turn_overlap_on() is None
    after = _peek(model.layers[0].kernel)
    assert not np.array_equal(before, after)
    model.train_on_batch(*_batch())
    np.testing.assert_array_equal(model.layers[0].kernel.numpy(), after)


@pytest.mark.parametrize("compile_eagerly", [True, False])
def test_eager_steps_train_immediately_and_say_so(gated_engine, recwarn, compile_eagerly):
    notices._said.clear()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model.compile(optimizer, loss="mse", run_eagerly=compile_eagerly)
    x = np.ones((4, 4), "float32")
    callback = hvd_p3.callbacks.P3Callback(verbose=0)
    model.fit(x, x[:, :3], batch_size=2, callbacks=[callback], verbose=0)
    assert optimizer.is_overlapped() != compile_eagerly
    before = model.get_weights()[0]
    optimizer.apply([tf.ones([4, 3]), tf.ones([3])], model.trainable_variables)
    np.testing.assert_array_equal(_peek(model.layers[0].kernel), before - np.float32(0.1))
    said = [str(each.message) for each in recwarn if "immediate mode" in str(each.message)]
    assert len(said) == 1
    assert "eagerly" in said[0]


def test_gradients_are_reduced_in_their_own_memory(gated_engine):
    model = _overlapped_model(_Probe())
    gated_engine.gate.hold(_SECOND_LAYER_ELEMENTS)
    model.train_on_batch(*_batch())
    _wait_until(lambda: hvd_p3.statistics()["held_bytes"] <= 4 * _SECOND_LAYER_ELEMENTS)
    assert hvd_p3.statistics()["held_bytes"] == 4 * _SECOND_LAYER_ELEMENTS
    gated_engine.gate.hold(0)


def test_update_that_is_lost_is_never_mistaken_for_an_applied_one(gated_engine):
    model = _overlapped_model(_Probe())
    model.train_on_batch(*_batch())
    _wait_until(lambda: hvd_p3.statistics()["held_bytes"] == 0)
    model.optimizer.settle()
    gated_engine.gate.hold(_SECOND_LAYER_ELEMENTS)
    model.train_on_batch(*_batch())
    _engine.stop(0.0)  # the reduction that is held never completes
    for _ in range(2):
        with pytest.raises(tf.errors.AbortedError, match="shut down"):
            model.layers[2].kernel.numpy()
