"""Measures the profile of a Keras model on the device at hand."""

import dataclasses
import math

import keras
import numpy as np
import tensorflow as tf

from hvd_p3.distributed_optimizer import class_of
from hvd_p3.planner import flops, layer_calls, timing
from hvd_p3.planner.inputs import next_s
from hvd_p3_tools.planner import profile as profiles
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.model_tables import Convolution

# Their output is their input, or its memory.
_WITHOUT_MEMORY = (keras.layers.Flatten, keras.layers.Reshape, keras.layers.InputLayer)


def profile(model, batch, inputs=None, dataset=None, repeats=7):
    """Measures how long each layer computes, and how much memory it takes.

    Each layer is called alone with what the model calls it with, forward and backward, and the
    times are scaled so that they add up to those of the whole model. Layers without variables count
    with the layer in front of them. Their operations are counted too (`flops.count` says which), so
    that times can be estimated for another device. Nothing is trained: all variables are as before.

    Args:
        model: `keras.Model`. If it is compiled, the update of its optimizer is timed.
        batch: int, examples of a rank in one step.
        inputs: What the model is called with, for `batch` examples; default: random numbers, if
            the model knows the shapes of its inputs.
        dataset: Iterable of batches, `keras.utils.PyDataset`, or None. A step is taken to wait for
            as much of the time of a batch as exceeds its computation, as with prefetching.
        repeats: int. The least of so many times counts.

    Returns:
        `hvd_p3_tools.planner.profile.Profile`.

    Raises:
        PlannerError: If the batch is below 1, the model has no trainable variables, or its inputs
            are not known.

    Example:

    ```python
    profile = planner.profile(model, batch=32)
    planner.write(profile, "profile.json")
    ```
    """
    if batch < 1 or repeats < 1:
        raise PlannerError(f"batch and repeats must be at least 1. Received: {batch} and {repeats}")
    if inputs is None:
        inputs = _random_inputs(model, batch)
    inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
    if not model.built:
        model(inputs, training=False)
    if not model.trainable_variables:
        raise PlannerError(f"the model {model.name} has no trainable variables; nothing is sent")
    before = [(variable, variable.numpy()) for variable in model.non_trainable_variables]
    try:
        calls = layer_calls.record(model, inputs)
        whole = timing.passes_s(
            lambda: model(inputs, training=True),
            [variable.value for variable in model.trainable_variables],
            repeats,
        )
        parts = [_time(call, repeats) for call in calls]
        operations = [flops.of_layer(each.layer, each.arguments, each.keywords) for each in calls]
        single = tf.nest.map_structure(lambda tensor: tensor[:1], inputs)
        one_s = timing.least_s(lambda: tf.nest.flatten(model(single, training=True)), repeats)
    finally:
        for variable, value in before:  # such as moving averages
            variable.assign(value)
    layers = _layers(model, calls, parts, operations, whole, batch)
    update_s = _update_s(model, repeats)
    compute_s = sum(whole) + update_s
    input_s = 0.0 if dataset is None else max(0.0, next_s(dataset) - compute_s)
    return profiles.Profile(
        name=model.name,
        source=f"Measured with TensorFlow {tf.__version__} on {_device_name()}.",
        batch=batch,
        layers=layers,
        input_bytes=sum(_bytes(tensor) for tensor in tf.nest.flatten(inputs)) // batch,
        input_s=input_s,
        update_s=update_s,
        layer_overhead_s=_overhead_s(whole[0], one_s, batch, layers),
    )


def _random_inputs(model, batch):
    """Random numbers, or zeros for integers, of the shapes that the model was built with."""
    known = getattr(model, "inputs", None)
    if not known:
        raise PlannerError(
            f"the model {model.name} does not know its inputs; give inputs= for a batch"
        )
    generator = np.random.default_rng(0)

    def make(tensor):
        shape = (batch, *tensor.shape[1:])
        if None in shape:
            raise PlannerError(
                f"the input {tensor.name} of {model.name} has the open shape {tensor.shape}; give "
                "inputs= for a batch"
            )
        if "float" in tensor.dtype:
            return tf.constant(generator.standard_normal(shape), tensor.dtype)
        return tf.zeros(shape, tensor.dtype)

    structure = getattr(model, "_inputs_struct", None)
    if structure is None:
        made = [make(tensor) for tensor in known]
        return made[0] if len(made) == 1 else made
    return keras.tree.map_structure(make, structure)


def _time(call, repeats):
    watched = timing.floating((call.arguments, call.keywords))
    watched += [variable.value for variable in call.layer.trainable_variables]
    return timing.passes_s(lambda: call.layer(*call.arguments, **call.keywords), watched, repeats)


def _layers(model, calls, parts, operations, whole, batch):
    """Puts the calls together to layers with variables, in the order of their first calls."""
    forward_scale, backward_scale = (
        total / measured if (measured := math.fsum(part)) > 0 else 0.0
        for total, part in zip(whole, zip(*parts, strict=True), strict=True)
    )
    owners = []  # layers with variables
    collected = {}  # id of such a layer -> [forward_s, backward_s, activation_bytes, flops]
    waiting = [0.0, 0.0, 0, 0]  # of layers in front of the first with variables
    current = waiting
    for call, (forward_s, backward_s), counted in zip(calls, parts, operations, strict=True):
        if call.layer.trainable_variables:
            if id(call.layer) not in collected:
                owners.append(call.layer)
                collected[id(call.layer)] = [0.0, 0.0, 0, 0]
            current = collected[id(call.layer)]
        current[0] += forward_s * forward_scale
        current[1] += backward_s * backward_scale
        current[3] += counted // batch
        if isinstance(call.layer, _WITHOUT_MEMORY):
            continue
        outputs = tf.nest.flatten(call.outputs)
        current[2] += sum(_bytes(each) for each in outputs if isinstance(each, tf.Tensor)) // batch
    known = {id(variable) for owner in owners for variable in owner.trainable_variables}
    own = [each for each in model.trainable_variables if id(each) not in known]
    described = []
    if own:  # of the model itself, or of layers that it does not call
        described.append(profiles.Layer(f"{model.name} itself", 0.0, 0.0, _gradients(own)))
    for index, owner in enumerate(owners):
        numbers = collected[id(owner)]
        if index == 0:
            numbers = [sum(pair) for pair in zip(numbers, waiting, strict=True)]
        described.append(
            profiles.Layer(
                name=owner.path,
                forward_s=numbers[0],
                backward_s=numbers[1],
                gradients=_gradients(owner.trainable_variables),
                activation_bytes=numbers[2],
                flops=numbers[3],
                convolution=_convolution(owner, calls),
            )
        )
    return tuple(_with_unique_names(described))


def _with_unique_names(layers):
    seen = {}
    for layer in layers:
        seen[layer.name] = seen.get(layer.name, 0) + 1
        count = seen[layer.name]
        yield layer if count == 1 else dataclasses.replace(layer, name=f"{layer.name} ({count})")


def _gradients(variables):
    names = {}
    gradients = []
    for variable in variables:
        names[variable.name] = names.get(variable.name, 0) + 1
        count = names[variable.name]
        name = variable.name if count == 1 else f"{variable.name}_{count}"
        size = math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
        gradients.append(profiles.Gradient(name, size))
    return tuple(gradients)


def _convolution(layer, calls):
    channels_last = getattr(layer, "data_format", None) == "channels_last"
    if type(layer) is not keras.layers.Conv2D or not channels_last:
        return None
    call = next(call for call in calls if call.layer is layer)
    return Convolution(
        input=tuple(call.arguments[0].shape[1:]),
        kernel=tuple(layer.kernel_size),
        strides=tuple(layer.strides),
        output=tuple(call.outputs.shape[1:]),
        groups=layer.groups,
    )


def _update_s(model, repeats):
    """Times the optimizer on copies of the variables, with a copy of the optimizer itself."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return 0.0
    kind = class_of(optimizer)  # updates of a distributed one would wait for other ranks
    copy = kind.from_config(kind.get_config(optimizer))
    variables = [keras.Variable(variable.numpy()) for variable in model.trainable_variables]
    gradients = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
    copy.build(variables)

    def update():
        copy.apply(gradients, variables)
        return []

    return timing.least_s(update, repeats)


def _overhead_s(forward_s, one_s, batch, layers):
    """What a pass of a layer takes whatever the batch: where a line through the times of one
    example and of the batch meets no examples."""
    if batch == 1:
        return 0.0
    fixed_s = (batch * one_s - forward_s) / (batch - 1)
    return min(max(0.0, fixed_s), forward_s) / len(layers)


def _bytes(tensor):
    return math.prod(tensor.shape) * tensor.dtype.size


def _device_name():
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return "the processor"
    return tf.config.experimental.get_device_details(gpus[0]).get("device_name", "a GPU")
