"""Checks the shared objects of a build for GPUs and of one without:
check_cuda_build.py FOLDER_WITH_CUDA FOLDER_WITHOUT
"""

import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path

# The arguments of each op that its kernel reads or writes on the host.
ON_THE_HOST = {
    "HvdP3Slot": {"slot"},
    "HvdP3Push": {"slot"},
    "HvdP3IsPending": {"slot", "pending"},
    "HvdP3Pull": {"slot", "pushed_version"},
    "HvdP3Confirm": {"slot"},
    "HvdP3AllReduce": {"slot"},
    "HvdP3Arrival": set(),
}


def readelf(path, *options):
    command = ["readelf", "--wide", *options, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", readelf(path, "--dynamic"))


def check(condition, message):
    if not condition:
        sys.exit(f"check_cuda_build.py: {message}")


def check_with_cuda(folder):
    info = runpy.run_path(str(folder / "_build_info.py"))
    check(info["CUDA_VERSION"] and info["NCCL_VERSION"], f"{folder}/_build_info.py names no CUDA")
    engine = folder / "libhvd_p3_engine.so"
    libraries = needed(engine)
    check("libnccl.so.2" in libraries, f"{engine} does not need NCCL: {libraries}")
    # These are not on machines without a GPU, or are another version than TensorFlow's.
    for name in libraries:
        check(not name.startswith(("libcuda.", "libcudart.")), f"{engine} needs {name}")
    exported = re.findall(r"GLOBAL +DEFAULT +\d+ +(cuda\w+)", readelf(engine, "--dyn-syms"))
    check(not exported, f"{engine} exports CUDA's runtime to other libraries: {exported[:3]}")

    (module,) = folder.glob("_engine.*.so")
    spec = importlib.util.spec_from_file_location("_engine", module)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    import tensorflow as tf

    tf.load_op_library(str(folder / "_tensorflow_ops.so"))
    check_gpu_kernels()
    print(f"{folder} loads, with CUDA {info['CUDA_VERSION']} and NCCL {info['NCCL_VERSION']}")


def check_gpu_kernels():
    """On a GPU, TensorFlow puts all arguments but those that a kernel names into its memory."""
    from tensorflow.python.framework import kernels

    registered = kernels.get_all_registered_kernels().kernel
    ours = [each for each in registered if each.op.startswith("HvdP3")]
    names = sorted({each.op for each in ours})
    check(names == sorted(ON_THE_HOST), f"the ops are {names}")
    for name in names:
        gpu = [each for each in ours if each.op == name and each.device_type == "GPU"]
        on_host = [set(each.host_memory_arg) for each in gpu]
        expected = ON_THE_HOST[name]
        check(on_host == [expected], f"{name} has {on_host} in host memory on GPUs, not {expected}")


def check_without_cuda(folder):
    if runpy.run_path(str(folder / "_build_info.py"))["CUDA_VERSION"] is not None:
        print(f"{folder} is a build with CUDA itself")
        return
    objects = sorted(folder.glob("*.so"))
    check(objects, f"{folder} has no shared objects")
    for path in objects:
        text = readelf(path, "--dynamic", "--symbols", "--dyn-syms")
        found = re.findall(r"\S*(?:cuda|nccl)\S*", text, re.IGNORECASE)
        found = [name for name in found if name not in (str(path), path.name)]
        check(not found, f"{path} was built without CUDA and has traces of it: {found[:3]}")
    print(f"{folder} has no trace of CUDA and NCCL in {len(objects)} shared objects")


if __name__ == "__main__":
    check_with_cuda(Path(sys.argv[1]))
    check_without_cuda(Path(sys.argv[2]))
