"""Writes the tables of layers that `hvd_p3_tools.planner.model_tables` reads.

    python -m benchmarks.workloads.describe_models    # in the repository's root

The layers of ResNet50, VGG19 and InceptionV3 come from keras.applications, in the order in which
Keras calls them; those of AlexNet, BERT and Sockeye from the structure of these models. All
gradients are taken as dense. The operations of layers without trainable variables, such as pooling
and activations, are ignored. Their outputs are counted with the layer in front of them.
"""

import json
import math

import keras

from benchmarks.workloads import alexnet, bert, sockeye
from hvd_p3_tools.planner import model_tables

_APPLICATIONS = {
    "resnet50": ("ResNet50", (224, 224, 3)),
    "vgg19": ("VGG19", (224, 224, 3)),
    "inception_v3": ("InceptionV3", (299, 299, 3)),
}
_STRUCTURES = {"alexnet": alexnet, "bert_large": bert, "sockeye": sockeye}
NAMES = sorted([*_APPLICATIONS, *_STRUCTURES])
# Of an element, in training: 1 for the mean, 3 for the variance, 2 to normalize, 2 to scale and
# shift.
_BATCH_NORMALIZATION_OPERATIONS = 8
# Their output is their input, or its memory.
_WITHOUT_MEMORY = (keras.layers.Flatten, keras.layers.Reshape, keras.layers.InputLayer)


def _flops(layer, output_shape):
    """Operations of a layer for one example; `output_shape` is (batch, ..., channels)."""
    outputs = math.prod(output_shape[1:])
    if isinstance(layer, keras.layers.BatchNormalization):
        return _BATCH_NORMALIZATION_OPERATIONS * outputs
    if isinstance(layer, (keras.layers.Conv2D, keras.layers.DepthwiseConv2D, keras.layers.Dense)):
        # Every position of the output multiplies by every element of the kernel once.
        positions = math.prod(output_shape[1:-1])
        additions_of_bias = outputs if layer.use_bias else 0
        return 2 * math.prod(layer.kernel.shape) * positions + additions_of_bias
    raise TypeError(
        f"The operations of a {type(layer).__name__} are not known. Received: {layer.name!r}"
    )


def _convolution(layer, input_shape, output_shape):
    """The geometry of a convolution, as `model_tables.Convolution` has it."""
    return {
        "input": list(input_shape[1:]),
        "kernel": list(layer.kernel_size),
        "strides": list(layer.strides),
        "output": list(output_shape[1:]),
        "groups": layer.groups,
    }


def _layers(model):
    found = []

    def call(layer, *args, **kwargs):
        output = layer(*args, **kwargs)
        outputs = math.prod(output.shape[1:])
        if layer.trainable_variables:
            variables = [
                {"name": variable.name, "shape": [int(size) for size in variable.shape]}
                for variable in layer.trainable_variables
            ]
            flops = _flops(layer, output.shape)
            described = {"name": layer.name, "flops": flops, "activations": outputs}
            if isinstance(layer, keras.layers.Conv2D):
                described["convolution"] = _convolution(layer, args[0].shape, output.shape)
            found.append({**described, "variables": variables})
        elif found and not isinstance(layer, _WITHOUT_MEMORY):
            found[-1]["activations"] += outputs
        return output

    # model.layers is in another order than the calls where branches are equally deep.
    keras.models.clone_model(model, clone_function=lambda layer: layer, call_function=call)
    return found


def _table(name, source, example, inputs, layers):
    parameters = sum(
        math.prod(variable["shape"]) for layer in layers for variable in layer["variables"]
    )
    return {
        "name": name,
        "source": source,
        "example": example,
        "inputs": inputs,
        "parameters": parameters,
        "layers": layers,
    }


def describe_application(name):
    """Describes a model of keras.applications with 1000 classes.

    No memory is allocated for its variables.

    Args:
        name: str, `"resnet50"`, `"vgg19"` or `"inception_v3"`.

    Returns:
        dict, as it is written.
    """
    constructor, input_shape = _APPLICATIONS[name]
    keras.config.set_image_data_format("channels_last")
    keras.backend.clear_session()  # numbers in the names of layers start at 0
    with keras.StatelessScope(initialize_variables=False):
        model = getattr(keras.applications, constructor)(
            weights=None, input_shape=input_shape, classes=1000
        )
        layers = _layers(model)
    return _table(
        name,
        source=f"Trainable variables of keras.applications.{constructor} with 1000 classes.",
        example="an image of {} x {} x {}".format(*input_shape),
        inputs=math.prod(input_shape),
        layers=layers,
    )


def describe_structure(name, module):
    """Describes a model that is not in keras.applications.

    Args:
        name: str.
        module: With `SOURCE`, `EXAMPLE`, `INPUTS` and `layers()`, such as `sockeye`.

    Returns:
        dict, as it is written.
    """
    return _table(name, module.SOURCE, module.EXAMPLE, module.INPUTS, module.layers())


def describe(name):
    """Describes any of the models.

    Args:
        name: str, one of `NAMES`.

    Returns:
        dict, as it is written.
    """
    if name in _APPLICATIONS:
        return describe_application(name)
    return describe_structure(name, _STRUCTURES[name])


def write(table, folder=model_tables.FOLDER):
    """Writes a table to `<folder>/<name>.json`, one layer a line.

    Args:
        table: dict, as `describe_application` returns it.
        folder: `pathlib.Path`.
    """
    fields = [f'"{key}": {json.dumps(table[key])}' for key in table if key != "layers"]
    layers = ",\n".join(json.dumps(layer) for layer in table["layers"])
    text = "{\n" + ",\n".join([*fields, f'"layers": [\n{layers}\n]']) + "\n}\n"
    folder.mkdir(exist_ok=True)
    (folder / f"{table['name']}.json").write_text(text)


def main():
    """Writes and prints a summary of all tables."""
    for table in map(describe, NAMES):
        write(table)
        giga_flops = sum(layer["flops"] for layer in table["layers"]) / 1e9
        print(
            f"{table['name']}: {len(table['layers'])} layers, {table['parameters']:,} parameters, "
            f"{giga_flops:.3f} GFLOPs for {table['example']}"
        )


if __name__ == "__main__":
    main()
