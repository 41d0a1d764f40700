"""`load_model` on one rank: what the file holds, and what it does not."""

import keras
import numpy as np
import pytest

import hvd_p3
from hvd_p3.optimizer import is_distributed


class HalfAdam(keras.optimizers.Adam):
    """An optimizer of the user."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate / 2)


def _trained(optimizer):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model.compile(optimizer, loss=keras.losses.MeanSquaredError())
    model.fit(np.ones((4, 2)), np.ones((4, 3)), batch_size=2, verbose=0)
    return model


@pytest.mark.parametrize("wrap", [hvd_p3.DistributedOptimizer, lambda optimizer: optimizer])
def test_state_is_restored(one_rank, tmp_path, wrap):
    model = _trained(wrap(keras.optimizers.Adam(0.1, beta_1=0.8)))
    model.save(tmp_path / "model.keras")
    loaded = hvd_p3.load_model(tmp_path / "model.keras", name="again")
    assert is_distributed(loaded.optimizer)
    assert isinstance(loaded.optimizer, keras.optimizers.Adam)
    assert loaded.optimizer.beta_1 == 0.8
    assert int(loaded.optimizer.iterations) == 2
    pairs = [*zip(loaded.variables, model.variables, strict=True)]
    pairs += zip(loaded.optimizer.variables, model.optimizer.variables, strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_classes_of_the_user(one_rank, tmp_path):
    model = _trained(hvd_p3.DistributedOptimizer(HalfAdam(0.1)))
    model.save(tmp_path / "model.keras")
    loaded = hvd_p3.load_model(tmp_path / "model.keras", custom_optimizers=[HalfAdam])
    assert isinstance(loaded.optimizer, HalfAdam) and is_distributed(loaded.optimizer)
    loaded = hvd_p3.load_model(tmp_path / "model.keras", custom_objects={"HalfAdam": HalfAdam})
    assert isinstance(loaded.optimizer, HalfAdam) and is_distributed(loaded.optimizer)


def test_model_without_an_optimizer(one_rank, tmp_path):
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]).save(tmp_path / "model.keras")
    assert getattr(hvd_p3.load_model(tmp_path / "model.keras"), "optimizer", None) is None


def test_refusals(one_rank, tmp_path):
    with pytest.raises(ValueError, match="no legacy optimizers"):
        hvd_p3.load_model("model.keras", legacy_opts=True)
    model = _trained(keras.optimizers.SGD(0.1))
    model.save(tmp_path / "model.keras")
    with pytest.raises(TypeError, match="no_argument"):
        hvd_p3.load_model(tmp_path / "model.keras", no_argument=1)
    model.save(tmp_path / "model.h5")
    with pytest.raises(ValueError, match=r"has not restored .* model\.save\('model\.keras'\)"):
        hvd_p3.load_model(tmp_path / "model.h5")
