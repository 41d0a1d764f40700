"""Files of the checkpoint callbacks: whole at any moment, and written on rank 0 only."""

import os
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest

import hvd_p3
from hvd_p3 import process

_KILLED_IN_SECOND_EPOCH = """
import os, signal, sys
os.environ.update(HOROVOD_CONTROLLER="gloo", HOROVOD_CPU_OPERATIONS="gloo")
import keras, numpy as np
import hvd_p3

class Watch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.layers[0].bias.assign([float(epoch)])
        if epoch == 1:
            keras.layers.Dense.save_own_variables = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

hvd_p3.init()
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
checkpoint = hvd_p3.callbacks.ModelCheckpoint(sys.argv[1])
x = np.ones((2, 1))
model.fit(x, x, epochs=2, callbacks=[Watch(), checkpoint], verbose=0)
"""


def _model():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
    return model


def _fit(model, callback, **arguments):
    x = np.ones((4, 1), "float32")
    model.fit(x, x, batch_size=2, callbacks=[callback], verbose=0, **arguments)


def test_process_killed_while_it_saves_leaves_the_file_before(one_rank, tmp_path):
    path = tmp_path / "last.keras"
    command = [sys.executable, "-c", _KILLED_IN_SECOND_EPOCH, path]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == -signal.SIGKILL, result.stderr
    assert sorted(os.listdir(tmp_path)) == ["last.keras", "last.keras.partial"]
    model = hvd_p3.load_model(path)
    assert float(model.layers[0].bias[0]) == 0.0
    _fit(model, hvd_p3.callbacks.ModelCheckpoint(path))  # goes on, and uses the folder again
    assert os.listdir(tmp_path) == ["last.keras"]


@pytest.mark.parametrize("weights_only", [False, True])
@pytest.mark.parametrize(
    "callback", [hvd_p3.callbacks.ModelCheckpoint, hvd_p3.callbacks.BestModelCheckpoint]
)
def test_error_while_saving_leaves_the_file_before(
    one_rank, tmp_path, monkeypatch, callback, weights_only
):
    model = _model()
    path = tmp_path / ("model.weights.h5" if weights_only else "model.keras")
    checkpoint = callback(monitor="loss", filepath=path, save_weights_only=weights_only)
    _fit(model, checkpoint)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(keras.layers.Dense, "save_own_variables", fail)
    model.layers[0].bias.assign([1.0])  # a smaller loss, or a larger one
    checkpoint.best = np.inf
    with pytest.raises(OSError, match="no space left"):
        _fit(model, checkpoint)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_link_stays_a_link(one_rank, tmp_path):
    (tmp_path / "link.keras").symlink_to(tmp_path / "file.keras")
    _fit(_model(), hvd_p3.callbacks.ModelCheckpoint(tmp_path / "link.keras"))
    assert (tmp_path / "link.keras").is_symlink()
    assert hvd_p3.load_model(tmp_path / "file.keras").count_params() == 2


def test_other_ranks_write_nothing_and_know_the_best(one_rank, tmp_path, monkeypatch):
    monkeypatch.setattr(process, "rank", lambda: 1)
    last = hvd_p3.callbacks.ModelCheckpoint(tmp_path / "of_1" / "last.keras", save_freq=1)
    best = hvd_p3.callbacks.BestModelCheckpoint(
        monitor="loss", filepath=tmp_path / "of_1" / "best.keras", save_freq=1
    )
    model = _model()
    _fit(model, last, epochs=2)
    _fit(model, best, epochs=2)
    assert os.listdir(tmp_path) == []
    assert best.best == pytest.approx(model.history.history["loss"][0])


@pytest.mark.parametrize("save_freq", ["epoch", 1])
def test_best_of_rank_0_by_epochs_and_batches(one_rank, tmp_path, save_freq):
    path = tmp_path / "made" / "best-{epoch}.keras"
    checkpoint = hvd_p3.callbacks.ModelCheckpoint(
        path, monitor="loss", save_best_only=True, save_freq=save_freq
    )
    model = _model()
    _fit(model, checkpoint, epochs=3)  # whose loss does not change
    assert os.listdir(tmp_path / "made") == ["best-1.keras"]
    assert checkpoint.model is model


def test_messages_name_the_file(one_rank, tmp_path, capsys):
    path = tmp_path / "last.keras"
    _fit(_model(), hvd_p3.callbacks.ModelCheckpoint(path, verbose=1))
    assert f"saving model to {path}\n" in capsys.readouterr().out


def test_best_model_without_its_metric_is_not_saved(one_rank, tmp_path):
    best = hvd_p3.callbacks.BestModelCheckpoint(
        monitor="val_loss", filepath=tmp_path / "best.keras"
    )
    with pytest.warns(UserWarning, match="the logs have no 'val_loss'. They have: loss"):
        _fit(_model(), best)
    assert os.listdir(tmp_path) == []
