"""Time and memory of the algorithms for a convolution: GEMM, FFT and Winograd.

Each works in stages. A stage takes as long as its operations or its reads and writes, whichever is
longer (the roofline model: Williams, Waterman and Patterson, 2009). The numbers are those of the
forward pass; both gradients are convolutions of the same size, so that training takes three times
as long.
"""

import dataclasses
import math

from hvd_p3_tools.planner.device import Device

ELEMENT_BYTES = 4  # float32
_COMPLEX_BYTES = 8
_PASSES = 3  # forward, gradient of the input, gradient of the kernel
# Winograd F(2 x 2, 3 x 3) of Lavin and Gray, 2016: a tile of 4 x 4 inputs makes 2 x 2 outputs.
_TILE, _TILE_OUTPUT, _TILE_KERNEL = 4, 2, 3
_TILE_ELEMENTS = _TILE**2
_DATA_TRANSFORM, _KERNEL_TRANSFORM, _INVERSE_TRANSFORM = 32, 28, 24  # operations of a tile


@dataclasses.dataclass(frozen=True)
class Choice:
    """An algorithm for a convolution.

    Args:
        algorithm: str, `"gemm"`, `"fft"` or `"winograd"`.
        seconds: float, of forward and backward pass of a batch.
        workspace_bytes: float.
    """

    algorithm: str
    seconds: float
    workspace_bytes: float


def choices(convolution, batch, device):
    """Lists what can compute a convolution.

    Args:
        convolution: `model_tables.Convolution`.
        batch: int.
        device: `Device`.

    Returns:
        List of `Choice`: GEMM; FFT for strides of 1; Winograd for strides of 1 and 3 x 3 kernels.
    """
    found = [_gemm(convolution, batch, device)]
    if set(convolution.strides) == {1}:
        if max(convolution.kernel) > 1:
            found.append(_fft(convolution, batch, device))
        if set(convolution.kernel) == {_TILE_KERNEL}:
            found.append(_winograd(convolution, batch, device))
    return found


def least_workspace_bytes(profile, batch):
    """Adds up the least workspace of each convolution, whatever time that takes.

    Args:
        profile: `profile.Profile`.
        batch: int.

    Returns:
        float. It never gets less with the batch.
    """
    return math.fsum(
        min(choice.workspace_bytes for choice in choices(layer.convolution, batch, Device()))
        for layer in profile.layers
        if layer.convolution is not None
    )


def _stage_s(device, flops, moved_bytes):
    return max(flops / device.flops_per_s, moved_bytes / device.memory_bytes_per_s)


def _weights(convolution):
    return (
        math.prod(convolution.kernel)
        * (convolution.input[2] // convolution.groups)
        * convolution.output[2]
    )


def _gemm(convolution, batch, device):
    """A product of matrices: each column is what one output position reads, for one image at a time
    (im2col: Chellapilla, Puri and Simard, 2006). Kernels of 1 x 1 read the input as it is."""
    positions = math.prod(convolution.output[:2])
    columns = math.prod(convolution.kernel) * convolution.input[2] * positions
    inputs, outputs = math.prod(convolution.input), math.prod(convolution.output)
    in_place = set(convolution.kernel) == {1} and set(convolution.strides) == {1}
    gather_s = 0.0 if in_place else _stage_s(device, 0, ELEMENT_BYTES * batch * (inputs + columns))
    flops = 2 * batch * _weights(convolution) * positions
    moved = ELEMENT_BYTES * (batch * (columns + outputs) + _weights(convolution))
    seconds = gather_s + _stage_s(device, flops, moved)
    return Choice("gemm", _PASSES * seconds, 0 if in_place else ELEMENT_BYTES * columns)


def _fft(convolution, batch, device):
    """Products of spectra (Mathieu, Henaff and LeCun, 2014). A real transform of N numbers takes
    2.5 N log₂ N operations, and leaves about half as many complex numbers."""
    sides = [
        2 ** math.ceil(math.log2(size + kernel - 1))
        for size, kernel in zip(convolution.input[:2], convolution.kernel, strict=True)
    ]
    points = math.prod(sides)
    spectrum = sides[0] * (sides[1] // 2 + 1)
    channels, filters = convolution.input[2], convolution.output[2]
    kernels = channels // convolution.groups * filters
    planes = batch * (channels + filters) + kernels
    transform_flops = 2.5 * points * math.log2(points) * planes
    real = ELEMENT_BYTES * (
        batch * (math.prod(convolution.input) + math.prod(convolution.output))
        + _weights(convolution)
    )
    workspace = _COMPLEX_BYTES * spectrum * planes
    seconds = _stage_s(device, transform_flops, real + workspace)
    seconds += _stage_s(device, 8 * spectrum * batch * kernels, workspace)
    return Choice("fft", _PASSES * seconds, workspace)


def _winograd(convolution, batch, device):
    """Minimal filtering with 16 instead of 36 multiplications for 2 x 2 outputs."""
    tiles = batch * math.prod(math.ceil(size / _TILE_OUTPUT) for size in convolution.output[:2])
    channels, filters = convolution.input[2], convolution.output[2]
    kernels = channels // convolution.groups * filters
    transform_flops = (
        _DATA_TRANSFORM * tiles * channels
        + _KERNEL_TRANSFORM * kernels
        + _INVERSE_TRANSFORM * tiles * filters
    )
    real = ELEMENT_BYTES * (
        batch * (math.prod(convolution.input) + math.prod(convolution.output))
        + _weights(convolution)
    )
    workspace = ELEMENT_BYTES * _TILE_ELEMENTS * (tiles * (channels + filters) + kernels)
    seconds = _stage_s(device, transform_flops, real + workspace)
    seconds += _stage_s(device, 2 * _TILE_ELEMENTS * tiles * kernels, workspace)
    return Choice("winograd", _PASSES * seconds, workspace)
