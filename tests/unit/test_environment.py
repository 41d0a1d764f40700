"""What import says when the installed packages do not fit together: one sentence each."""

import importlib
import sys
import types

import keras
import pytest
import tensorflow as tf

from hvd_p3 import _environment


def _assert_one_sentence(error, *parts):
    message = str(error.value)
    assert "\n" not in message
    assert message.endswith(".")
    for part in parts:
        assert part in message


@pytest.mark.parametrize(("version", "age"), [("2.15.1", "old"), ("2.21.0", "new")])
def test_tensorflow_that_is_too_old_or_too_new(monkeypatch, version, age):
    monkeypatch.setattr(tf, "__version__", version)
    with pytest.raises(ImportError) as error:
        _environment.check_tensorflow()
    _assert_one_sentence(error, version, f"too {age}", "2.16 to 2.20")


def test_missing_tensorflow(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ImportError) as error:
        _environment.check_tensorflow()
    _assert_one_sentence(error, "TensorFlow", "pip install")


def test_legacy_keras_variable(monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    with pytest.raises(ImportError) as error:
        _environment.check_keras()
    _assert_one_sentence(error, "TF_USE_LEGACY_KERAS", "unset")


@pytest.mark.parametrize("version", ["2.15.0", "3.9.2"])
def test_keras_that_is_too_old(monkeypatch, version):
    monkeypatch.setattr(keras, "__version__", version)
    with pytest.raises(ImportError) as error:
        _environment.check_keras()
    _assert_one_sentence(error, f"Keras {version}", "Keras 3.10 or newer")


def test_keras_on_another_backend(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ImportError) as error:
        _environment.check_keras()
    _assert_one_sentence(error, "jax", "KERAS_BACKEND=tensorflow")


def test_missing_horovod(monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", None)
    with pytest.raises(ImportError) as error:
        _environment.check_horovod()
    _assert_one_sentence(error, "Horovod 0.28.1", "HOROVOD_WITH_MPI=1")


def test_horovod_without_mpi(monkeypatch):
    without_mpi = types.SimpleNamespace(mpi_built=lambda: False)
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", without_mpi)
    with pytest.raises(ImportError) as error:
        _environment.check_horovod()
    _assert_one_sentence(error, "without MPI", "HOROVOD_WITH_MPI=1")


def test_horovod_for_another_tensorflow(monkeypatch):
    def fail(name):
        raise tf.errors.NotFoundError(None, None, "undefined symbol: _ZN10tensorflow\nmore")

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(ImportError) as error:
        _environment.check_horovod()
    _assert_one_sentence(error, "another TensorFlow or MPI", "undefined symbol")


def test_library_for_another_tensorflow():
    with pytest.raises(ImportError) as error:
        _environment.check_build("2.19.0")
    _assert_one_sentence(error, f"TensorFlow {tf.__version__}", "2.19.0 was imported", "rebuild")


def test_library_that_was_not_built(monkeypatch):
    monkeypatch.setitem(sys.modules, "hvd_p3._build_info", None)
    with pytest.raises(ImportError) as error:
        _environment.check_build(tf.__version__)
    _assert_one_sentence(error, "was not built", "pip install")


def test_library_that_cannot_be_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "hvd_p3._engine", None)
    with pytest.raises(ImportError) as error:
        _environment.check_build(tf.__version__)
    _assert_one_sentence(error, "cannot be loaded", "MPI")


def test_what_is_installed_here_fits():
    _environment.check()
