"""The memory of a batch, and the algorithms of convolutions."""

import dataclasses
import itertools

import planner_models as models
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hvd_p3_tools.planner import algorithms, builtin, convolution, memory, profile
from hvd_p3_tools.planner.convolution import Choice
from hvd_p3_tools.planner.device import Device
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.model_tables import Convolution

_VGG_BLOCK = Convolution((56, 56, 256), (3, 3), (1, 1), (56, 56, 256))
# So slow to compute that reads and writes take no time.
_COMPUTES = Device(flops_per_s=1e9, memory_bytes_per_s=1e30)


def test_accounting_of_vgg19():
    vgg19 = builtin.load("vgg19")
    used = memory.account(vgg19, 10, "momentum", ranks=4)
    assert used.weights == used.gradients == used.reduced == used.optimizer_state == 574668960
    # Feature maps with batch 1, in numbers: convolutions of 2, 2, 4, 4 and 4 layers, poolings,
    # dense layers; and once more the largest, 224 x 224 x 64 + 112 x 112 x 64, and the image.
    convolutions = 64 * (2 * 224**2 + 112**2) + 128 * (2 * 112**2 + 56**2)
    convolutions += 256 * (4 * 56**2 + 28**2) + 512 * (4 * 28**2 + 14**2) + 512 * (4 * 14**2 + 7**2)
    largest = 64 * (224**2 + 112**2)
    numbers = convolutions + 4096 + 4096 + 1000 + largest + 224 * 224 * 3
    assert memory.bytes_of_example(vgg19) == 4 * numbers
    assert used.feature_maps == 40 * numbers
    assert used.bytes == 4 * 574668960 + 40 * numbers
    assert memory.account(vgg19, 10, "sgd", ranks=1).bytes == 2 * 574668960 + 40 * numbers


@given(st.sampled_from(builtin.names()), st.floats(12e9, 1e12), st.sampled_from(["sgd", "adam"]))
@settings(max_examples=30)
def test_largest_batch_fits_and_one_more_does_not(name, memory_bytes, optimizer):
    profile = builtin.load(name)
    batch = memory.largest_batch(profile, memory_bytes, optimizer)
    assert memory.needed_bytes(profile, batch, optimizer) <= memory_bytes
    assert memory.needed_bytes(profile, batch + 1, optimizer) > memory_bytes


def test_least_workspace_is_that_of_the_cheapest_algorithms():
    # GEMM needs 4 * 9 * 256 * 56 ** 2 bytes whatever the batch; Winograd, for 28 ** 2 tiles of
    # 16 numbers of 512 channels in an image, and 256 * 256 kernels, 4 * 16 * (tiles + kernels).
    layer = profile.Layer("block", 1.0, 1.0, (), convolution=_VGG_BLOCK)
    model = profile.Profile("block", "A test.", 1, (layer,))
    gemm = 4 * 9 * 256 * 56**2
    winograd = 4 * 16 * (28**2 * 512 + 256 * 256)
    assert convolution.least_workspace_bytes(model, 1) == min(gemm, winograd) == gemm
    assert convolution.least_workspace_bytes(model, 100) == gemm
    small = Convolution((56, 56, 256), (3, 3), (1, 1), (56, 56, 8))
    narrow = profile.Profile(
        "narrow", "A test.", 1, (dataclasses.replace(layer, convolution=small),)
    )
    winograd = 4 * 16 * (28**2 * 264 + 256 * 8)
    assert convolution.least_workspace_bytes(narrow, 1) == winograd < gemm


def test_impossible_memory():
    with pytest.raises(PlannerError, match="bert_large does not fit 4 GB: weights"):
        memory.largest_batch(builtin.load("bert_large"), 4e9)
    with pytest.raises(PlannerError, match="does not say how many bytes an example takes"):
        memory.largest_batch(models.profile((1.0, 1.0, 4)), 4e9)
    with pytest.raises(PlannerError, match="the optimizer must be of sgd, momentum, adam"):
        memory.account(builtin.load("vgg19"), 1, "lion")


def test_operations_of_gemm():
    gemm = convolution.choices(_VGG_BLOCK, 2, _COMPUTES)[0]
    assert gemm.algorithm == "gemm"
    # Three passes, two images, multiplication and addition, 9 * 256 * 256 weights, 56^2 positions.
    assert gemm.seconds == pytest.approx(3 * 2 * 2 * 9 * 256 * 256 * 56**2 / 1e9)
    assert gemm.workspace_bytes == 4 * 9 * 256 * 56**2


def test_operations_of_winograd():
    (winograd,) = (
        each
        for each in convolution.choices(_VGG_BLOCK, 2, _COMPUTES)
        if each.algorithm == "winograd"
    )
    tiles, kernels = 2 * 28**2, 256 * 256
    flops = 2 * 16 * tiles * kernels + 256 * tiles * (32 + 24) + 28 * kernels
    assert winograd.seconds == pytest.approx(3 * flops / 1e9)
    assert winograd.workspace_bytes == 4 * 16 * (tiles * 512 + kernels)


def test_operations_of_fft():
    (fft,) = (
        each for each in convolution.choices(_VGG_BLOCK, 2, _COMPUTES) if each.algorithm == "fft"
    )
    # 56 + 3 - 1 = 58 points on each side go into 64; 64 * 33 complex numbers.
    planes = 2 * 512 + 256 * 256
    flops = 2.5 * 64**2 * 12 * planes + 8 * 64 * 33 * 2 * 256 * 256
    assert fft.seconds == pytest.approx(3 * flops / 1e9)
    assert fft.workspace_bytes == 8 * 64 * 33 * planes


def test_which_algorithms_apply():
    def names(kernel, stride):
        found = Convolution((8, 8, 4), (kernel, kernel), (stride, stride), (8, 8, 4))
        return [each.algorithm for each in convolution.choices(found, 1, Device())]

    assert names(3, 1) == ["gemm", "fft", "winograd"]
    assert names(5, 1) == ["gemm", "fft"]
    assert names(1, 1) == ["gemm"]
    assert names(3, 2) == ["gemm"]


_options = st.lists(
    st.lists(
        st.builds(Choice, st.just("any"), st.integers(1, 100), st.integers(0, 100)),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=5,
)


@given(_options, st.integers(0, 300))
@example([[Choice("any", 1, 1), Choice("any", 2, 0)]], 0)
def test_integer_program_finds_the_best(options, bound):
    """Against all combinations."""
    fitting = [
        each
        for each in itertools.product(*options)
        if sum(choice.workspace_bytes for choice in each) <= bound
    ]
    if not fitting:
        with pytest.raises(PlannerError, match="use a smaller batch"):
            algorithms.solve(options, bound)
        return
    chosen = algorithms.solve(options, bound)
    assert all(choice in choices for choice, choices in zip(chosen, options, strict=True))
    assert sum(choice.workspace_bytes for choice in chosen) <= bound
    assert sum(choice.seconds for choice in chosen) == min(
        sum(choice.seconds for choice in each) for each in fitting
    )


def test_more_memory_never_makes_convolutions_slower():
    vgg19 = builtin.load("vgg19")
    seconds = [
        algorithms.choose(vgg19, 16, Device(), gigabytes * 1e9).seconds
        for gigabytes in (1, 2, 4, 8)
    ]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > seconds[-1]
    assert seconds[-1] < algorithms.choose(vgg19, 16, Device(), 1e9).gemm_s
