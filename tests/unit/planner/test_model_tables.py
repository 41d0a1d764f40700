"""The tables of layers of well-known models: their totals, scaling and division of time."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.workloads import describe_models
from hvd_p3_tools.planner import model_tables as models

_ROOT = Path(__file__).parents[3]
_NAMES = ["alexnet", "bert_large", "inception_v3", "resnet50", "sockeye", "vgg19"]


def _variables(table):
    return [variable for layer in table.layers for variable in layer.variables]


def _flops(table):
    return sum(layer.flops for layer in table.layers)


def test_names():
    assert models.names() == _NAMES


def test_unknown_name():
    with pytest.raises(ValueError, match="name must be one of alexnet, bert_large") as error:
        models.load("lenet")
    assert "Received: 'lenet'" in str(error.value)


@pytest.mark.parametrize(
    ("name", "parameters", "giga_flops"),
    [
        # Layer by layer, weights and biases: 34,944 + 307,456 + 885,120 + 663,936 + 442,624
        # + 37,752,832 + 16,781,312 + 4,097,000; 0.724 billion multiplications.
        ("alexnet", 60_965_224, 1.45),
        # The published model. Dense layers: 24 x 12 x 1024^2 x 2 x 128 = 77.3 billion operations;
        # products of attention: 24 x 4 x 128^2 x 1024 = 1.6 billion.
        ("bert_large", 335_141_888, 79.0),
        ("inception_v3", 23_817_352, 11.4),
        ("resnet50", 25_583_592, 7.7),
        ("vgg19", 143_667_240, 39.3),
        ("sockeye", 27_733_021, 0.56),
    ],
)
def test_totals_are_the_published_ones(name, parameters, giga_flops):
    table = models.load(name)
    assert table.bytes == 4 * parameters
    assert sum(variable.elements for variable in _variables(table)) == parameters
    assert _flops(table) == pytest.approx(giga_flops * 1e9, rel=0.02)
    assert json.loads((models.FOLDER / f"{name}.json").read_text())["parameters"] == parameters


@pytest.mark.parametrize("name", _NAMES)
def test_names_of_layers_and_of_their_variables_are_unique(name):
    layers = models.load(name).layers
    assert len({layer.name for layer in layers}) == len(layers)
    for layer in layers:
        assert len({variable.name for variable in layer.variables}) == len(layer.variables) > 0


def test_layers_are_in_the_order_of_the_forward_pass():
    order = [layer.name for layer in models.load("vgg19").layers]
    assert order[0] == "block1_conv1"
    assert order[-3:] == ["fc1", "fc2", "predictions"]


def test_heaviest_layers():
    def heaviest(name):
        return max(models.load(name).layers, key=lambda layer: layer.bytes)

    assert heaviest("vgg19").name == "fc1"
    assert heaviest("vgg19").bytes == 4 * (25088 + 1) * 4096
    assert heaviest("sockeye").name == "source_embedding"
    assert heaviest("sockeye").variables == (models.Variable("weight", (17191, 512)),)


@pytest.mark.parametrize("name", ["alexnet", "bert_large", "sockeye", "vgg19"])
def test_written_table_is_what_describe_models_writes(name, tmp_path):
    describe_models.write(describe_models.describe(name), tmp_path)
    file = f"{name}.json"
    assert (models.FOLDER / file).read_text() == (tmp_path / file).read_text()


def test_activations_of_vgg19():
    layers = {layer.name: layer for layer in models.load("vgg19").layers}
    assert layers["block1_conv1"].activations == 224 * 224 * 64
    # The convolution, and the pooling after it.
    assert layers["block1_conv2"].activations == 224 * 224 * 64 + 112 * 112 * 64
    assert layers["fc1"].activations == 4096
    assert models.load("vgg19").inputs == 224 * 224 * 3


def test_convolutions_multiply_as_often_as_their_operations_say():
    for name in ("alexnet", "inception_v3", "resnet50", "vgg19"):
        for layer in models.load(name).layers:
            if layer.convolution is None:
                continue
            height, width, channels = layer.convolution.output
            kernel = next(each for each in layer.variables if len(each.shape) == 4)
            assert kernel.shape[:2] == layer.convolution.kernel
            assert kernel.shape[2] * layer.convolution.groups == layer.convolution.input[2]
            bias = len(layer.variables) - 1
            multiplied = 2 * kernel.elements * height * width
            assert layer.flops == multiplied + bias * height * width * channels


@pytest.mark.parametrize("factor", [1, 2, 3.5, 16, 64])
@pytest.mark.parametrize("name", _NAMES)
def test_scaled_sizes(name, factor):
    table = models.load(name)
    small = models.scaled(table, factor)
    assert small.bytes == pytest.approx(table.bytes / factor, rel=0.01)
    assert _flops(small) == _flops(table)
    for before, after in zip(_variables(table), _variables(small), strict=True):
        assert after.name == before.name
        assert len(after.shape) == 1
        assert abs(after.elements - before.elements / factor) <= 0.5


def test_scaled_variables_keep_an_element():
    small = models.scaled(models.load("resnet50"), 1e12)
    assert {variable.shape for variable in _variables(small)} == {(1,)}


@pytest.mark.parametrize("factor", [0, -2, math.inf, math.nan])
def test_scaling_refuses_what_makes_no_sense(factor):
    with pytest.raises(ValueError, match="factor must be a positive finite number"):
        models.scaled(models.load("vgg19"), factor)


@pytest.mark.parametrize("name", _NAMES)
def test_times_are_in_proportion_to_the_operations(name):
    table = models.load(name)
    times = models.compute_times(table, forward_s=0.1, backward_s=0.25)
    assert math.fsum(forward_s for forward_s, _ in times) == pytest.approx(0.1, rel=1e-12)
    assert math.fsum(backward_s for _, backward_s in times) == pytest.approx(0.25, rel=1e-12)
    for layer, (forward_s, backward_s) in zip(table.layers, times, strict=True):
        assert forward_s == pytest.approx(0.1 * layer.flops / _flops(table), rel=1e-12)
        assert backward_s == pytest.approx(2.5 * forward_s, rel=1e-12)


def test_times_refuse_what_makes_no_sense():
    table = models.load("vgg19")
    with pytest.raises(ValueError, match="backward_s must be finite and not negative"):
        models.compute_times(table, 0.1, -1)
    idle = models.ModelTable("idle", "", (models.Layer("embedding", 0, ()),))
    with pytest.raises(ValueError, match="table must have operations"):
        models.compute_times(idle, 0.1, 0.1)


def test_tables_need_no_tensorflow():
    program = (
        "import sys; from hvd_p3_tools.planner import model_tables; model_tables.load('vgg19'); "
        "sys.exit(not {'tensorflow', 'keras', 'numpy'}.isdisjoint(sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], cwd=_ROOT, check=True)
