#!/usr/bin/env bash
# Compiles and links hvd_p3 for NVIDIA GPUs, warnings as errors, into build/cuda, beside the build
# that is installed; tests what it does with NCCL's answers on fake libraries, checks that it loads
# on a machine without a GPU, and that the installed build, if it is one without CUDA, has no trace
# of it. Does nothing where there is no nvcc.
source "$(dirname "$0")/common.sh"

find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" nvcc /usr/local/cuda/bin/nvcc; do
    if [[ -n $candidate ]] && command -v "$candidate"; then return; fi
  done
  return 1
}

if ! nvcc=$(find_nvcc); then
  say "Not checked: the build for GPUs, since there is no nvcc (looked in CUDACXX, CUDA_HOME, PATH)"
  exit 0
fi
version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')

if [[ -z ${NCCL_HOME:-} && -z $(installed_version "nvidia_nccl_cu${version%%.*}") ]]; then
  say "Installing NCCL for CUDA $version into .venv (a minute)"
  run_logged "$LOGS/pip-nccl.log" pip install --no-deps -c tools/constraints.txt \
    "nvidia-nccl-cu${version%%.*}"
fi

say "Compiling for GPUs with CUDA $version (about 3 minutes the first time)"
# With the tests' programs, so that these compile too.
HVD_P3_WITH_CUDA=1 CMAKE_ARGS="-DHVD_P3_BUILD_TESTS=ON ${CMAKE_ARGS:-}" \
  run_logged "$LOGS/cuda-build.log" python setup.py build_ext --build-lib build/cuda

say "Checking what was built (some ten seconds)"
python=$(python -c 'import sys; print(sys.implementation.cache_tag)')
run_logged "$LOGS/nccl-states.log" \
  "build/$python-tensorflow-$(installed_version tensorflow)-cuda/nccl_states"
CUDA_VISIBLE_DEVICES=-1 TF_CPP_MIN_LOG_LEVEL=3 \
  run_logged "$LOGS/cuda-check.log" python tools/check_cuda_build.py build/cuda/hvd_p3 hvd_p3
