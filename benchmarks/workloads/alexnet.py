"""The layers of AlexNet as it was published, with two groups in three of its convolutions.

Krizhevsky, Sutskever and Hinton: ImageNet Classification with Deep Convolutional Neural Networks,
2012, section 3.5. The image is 227 x 227, with which the published sizes of layers are consistent.
"""

import math

SOURCE = (
    "Computed from the structure of AlexNet (Krizhevsky et al. 2012, section 3.5): 5 convolutions, "
    "of which 3 have two groups, and 3 dense layers, 1000 classes."
)
EXAMPLE = "an image of 227 x 227 x 3"
INPUTS = 227 * 227 * 3

# Name, size of the input, its channels, kernel, stride, size of the output, its channels, groups,
# and size of the output of the pooling that follows, or 0.
_CONVOLUTIONS = (
    ("conv1", 227, 3, 11, 4, 55, 96, 1, 27),
    ("conv2", 27, 96, 5, 1, 27, 256, 2, 13),
    ("conv3", 13, 256, 3, 1, 13, 384, 1, 0),
    ("conv4", 13, 384, 3, 1, 13, 384, 2, 0),
    ("conv5", 13, 384, 3, 1, 13, 256, 2, 6),
)
_DENSE = (("fc6", 6 * 6 * 256, 4096), ("fc7", 4096, 4096), ("fc8", 4096, 1000))


def _variables(*kernel):
    return [
        {"name": "kernel", "shape": list(kernel)},
        {"name": "bias", "shape": [kernel[-1]]},
    ]


def layers():
    """Describes the layers as `describe_models` writes them.

    The operations and the memory of response normalization are ignored.

    Returns:
        List of dict with `name`, `flops`, `activations`, `variables`, and `convolution` for those
        that are one.
    """
    described = []
    for name, size, channels, kernel, stride, output, filters, groups, pooled in _CONVOLUTIONS:
        shape = (kernel, kernel, channels // groups, filters)
        described.append(
            {
                "name": name,
                "flops": (2 * math.prod(shape) + filters) * output**2,
                "activations": filters * (output**2 + pooled**2),
                "convolution": {
                    "input": [size, size, channels],
                    "kernel": [kernel, kernel],
                    "strides": [stride, stride],
                    "output": [output, output, filters],
                    "groups": groups,
                },
                "variables": _variables(*shape),
            }
        )
    for name, inputs, outputs in _DENSE:
        described.append(
            {
                "name": name,
                "flops": (2 * inputs + 1) * outputs,
                "activations": outputs,
                "variables": _variables(inputs, outputs),
            }
        )
    return described
