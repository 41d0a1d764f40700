"""Checks, at import, that the installed TensorFlow, Keras, Horovod and hvd_p3 fit together.

Each failed check is an `ImportError` of one sentence: what was found and what to do.
"""

import ctypes
import importlib
import os
import sys

OLDEST_TENSORFLOW = (2, 16)
NEWEST_TENSORFLOW = (2, 20)
OLDEST_KERAS = (3, 10)  # overlapped updates fail in those before

_REBUILD = "rebuild hvd_p3 with `pip install --no-build-isolation --no-deps .` in its source folder"


def _version_pair(version):
    return tuple(int(part) for part in version.split(".")[:2])


def check_tensorflow():
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ImportError(
            f"hvd_p3 needs TensorFlow, which cannot be imported here ({error}): install it with "
            "`pip install 'tensorflow>=2.16,<2.21'`."
        ) from None
    found = _version_pair(tf.__version__)
    if not OLDEST_TENSORFLOW <= found <= NEWEST_TENSORFLOW:
        age = "old" if found < OLDEST_TENSORFLOW else "new"
        raise ImportError(
            f"TensorFlow {tf.__version__} is too {age} for hvd_p3: install one of 2.16 to 2.20, "
            f"then {_REBUILD}."
        )
    return tf


def check_keras():
    if os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):
        raise ImportError(
            "TF_USE_LEGACY_KERAS is set, which selects Keras 2, but hvd_p3 needs Keras 3: unset it."
        )
    try:
        import keras
    except ImportError as error:
        raise ImportError(
            f"hvd_p3 needs Keras 3, which cannot be imported here ({error}): install it with "
            "`pip install 'keras>=3.10'`."
        ) from None
    if _version_pair(keras.__version__) < OLDEST_KERAS:
        raise ImportError(
            f"Keras {keras.__version__} was found, but hvd_p3 needs Keras 3.10 or newer: "
            "install it with `pip install 'keras>=3.10'`."
        )
    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            f"Keras runs on the {keras.backend.backend()} backend, but hvd_p3 needs TensorFlow: "
            "set KERAS_BACKEND=tensorflow."
        )


def check_horovod():
    install = (
        "build it with HOROVOD_WITH_MPI=1 HOROVOD_WITH_TENSORFLOW=1 (`make setup` in hvd_p3's "
        "source folder does that)"
    )
    try:
        horovod = importlib.import_module("horovod.tensorflow")
    except ImportError as error:
        cause = str(error).splitlines()[0] if str(error) else "unknown cause"
        raise ImportError(
            f"hvd_p3 needs Horovod 0.28.1 built for this TensorFlow, and importing "
            f"horovod.tensorflow failed with '{cause}': {install}."
        ) from None
    except Exception as error:  # undefined symbols surface as tf.errors.NotFoundError
        cause = str(error).splitlines()[0]
        raise ImportError(
            f"Horovod was built for another TensorFlow or MPI than the installed one ({cause}): "
            f"{install}."
        ) from None
    if not horovod.mpi_built():
        raise ImportError(f"Horovod was built without MPI, which hvd_p3 needs: {install}.")


def check_build(tensorflow_version):
    try:
        build_info = importlib.import_module("hvd_p3._build_info")
    except ImportError:
        raise ImportError(
            "hvd_p3's C++ library was not built: run `pip install --no-build-isolation "
            "--no-deps .` in its source folder, and do not import hvd_p3 from that folder unless "
            "you installed it with -e."
        ) from None
    if tensorflow_version != build_info.TENSORFLOW_VERSION:
        raise ImportError(
            f"hvd_p3 was built for TensorFlow {build_info.TENSORFLOW_VERSION}, but TensorFlow "
            f"{tensorflow_version} was imported: {_REBUILD}."
        )
    try:
        importlib.import_module("hvd_p3._engine")
    except ImportError as error:
        libraries = build_info.MPI_LIBRARY
        if build_info.NCCL_VERSION is not None:
            libraries += f" and NCCL {build_info.NCCL_VERSION}"
        raise ImportError(
            f"hvd_p3's C++ library cannot be loaded ({error}): install {libraries}, with which it "
            f"was built, or {_REBUILD}."
        ) from None


horovod_sleeps = False  # whether it is in force in this process


def let_horovod_sleep():
    """Lets Horovod's background thread sleep instead of spin while it waits for other ranks.

    The library replaces one MPI function, see `csrc/interposed/`. That needs the place in front of
    MPI in the global scope, so it does nothing if Horovod was imported before hvd_p3.
    """
    global horovod_sleeps
    if "horovod.tensorflow.mpi_ops" not in sys.modules:
        horovod_sleeps = True
        ctypes.CDLL(
            os.path.join(os.path.dirname(__file__), "libhvd_p3_interposed.so"), ctypes.RTLD_GLOBAL
        )


def check():
    """Runs all checks, the most basic first."""
    tf = check_tensorflow()
    check_keras()
    check_build(tf.__version__)
    let_horovod_sleep()
    check_horovod()
