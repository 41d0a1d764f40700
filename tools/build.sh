#!/usr/bin/env bash
# Compiles hvd_p3 and installs it into .venv in editable mode, if anything it is
# compiled from has changed.
source "$(dirname "$0")/common.sh"

sources=$(find csrc cmake build_support CMakeLists.txt setup.py pyproject.toml -type f -not -name '*.pyc' -print0 | sort -z |
  xargs -0 sha256sum | sha256sum)
value="$ROOT tensorflow-$(installed_version tensorflow) $(mpi_version) cuda-${HVD_P3_WITH_CUDA:-0} $sources"

if stamped hvd_p3 "$value" && [[ -f hvd_p3/_build_info.py && -f hvd_p3/_tensorflow_ops.so ]] &&
  [[ -n $(installed_version hvd_p3) ]]; then
  exit 0
fi
say "Compiling and installing hvd_p3 (about 2 minutes the first time)"
run_logged "$LOGS/pip-hvd_p3.log" pip install -v --no-build-isolation --no-deps -e .
stamp hvd_p3 "$value"
