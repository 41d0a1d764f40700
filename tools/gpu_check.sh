#!/usr/bin/env bash
# Builds and runs the check of one GPU; needs the CUDA toolkit, CMake, a C++ compiler and NCCL, but
# neither Python packages nor TensorFlow nor MPI:
#   gpu_check.sh [REPORT]        (a Markdown file; default: build/gpu-check/report.md)
# NCCL_HOME names the folder of NCCL, if it is not in one of the system's. The GPUs to compile for
# are those of this machine; CMAKE_CUDA_ARCHITECTURES names others.
source "$(dirname "$0")/common.sh"

folder=build/gpu-check
report=${1:-$folder/report.md}

if [[ -z ${CUDACXX:-} ]]; then
  CUDACXX=$(command -v nvcc || true)
  [[ -n $CUDACXX ]] || CUDACXX=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
  [[ -x $CUDACXX ]] || fail "nvcc was not found (looked in PATH, CUDA_HOME and /usr/local/cuda);" \
    "install the CUDA toolkit, or set CUDACXX to its nvcc."
  export CUDACXX
fi

say "Building the check in $folder (a minute)"
build() {
  cmake -S . -B "$folder" -DHVD_P3_ENGINE_ONLY=ON -DHVD_P3_BUILD_TESTS=ON -DHVD_P3_WITH_CUDA=ON \
    "-DCMAKE_CUDA_ARCHITECTURES=${CMAKE_CUDA_ARCHITECTURES:-native}" &&
    cmake --build "$folder" --parallel "$JOBS" --target gpu_check
}
run_logged "$LOGS/gpu-check.log" build

say "Checking the first GPU (a minute)"
status=0
NCCL_DEBUG=${NCCL_DEBUG:-WARN} timeout --kill-after=10 300 "$folder/gpu_check" >"$report.new" </dev/null ||
  status=$?
mv "$report.new" "$report"
cat "$report"
((status != 124 && status != 137)) || fail "the check did not end within 5 minutes: something hangs"
((status == 0)) || fail "the check has failed; the report is in $report."
say "All checks passed; the report is in $report"
