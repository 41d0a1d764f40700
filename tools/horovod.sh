#!/usr/bin/env bash
# Installs Horovod 0.28.1 into .venv, from a wheel that is built once per Python,
# TensorFlow and MPI and kept outside the clone.
#
# pip must not keep or pick this wheel itself: it does not know which TensorFlow
# a wheel was built for, and one built for another fails on import.
source "$(dirname "$0")/common.sh"

HOROVOD_VERSION=0.28.1
MINUTES=$((JOBS > 3 ? 3 : 4))

build_wheel() { # DIRECTORY
  # TensorFlow has moved this header twice since Horovod's last release.
  local shim=$1/include wheels=$1/wheels
  mkdir -p "$shim/tensorflow/compiler/xla/client"
  cat >"$shim/tensorflow/compiler/xla/client/xla_builder.h" <<'EOF'
#if __has_include("xla/hlo/builder/xla_builder.h")
#include "xla/hlo/builder/xla_builder.h"
#else
#include "xla/client/xla_builder.h"
#endif
EOF
  # The last setting lets CMake 4 read the project files of Horovod's bundled Gloo.
  CXXFLAGS="-I$shim" \
    MAKEFLAGS="-j$JOBS" \
    HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 \
    HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 \
    CMAKE_POLICY_VERSION_MINIMUM=3.5 \
    run_logged "$LOGS/horovod.log" \
    pip wheel -v --no-cache-dir --no-deps --no-build-isolation -w "$wheels" \
    "horovod==$HOROVOD_VERSION"
}

tensorflow=$(installed_version tensorflow)
python=$("$VENV/bin/python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
key=$python-tensorflow-$tensorflow-$(mpi_version)-$(uname -m)
cached=$CACHE/horovod/$key

if stamped horovod "$key" && [[ $(installed_version horovod) == "$HOROVOD_VERSION" ]]; then
  exit 0
fi

mkdir -p "$CACHE/horovod"
exec 9>"$CACHE/horovod/$key.lock"
if ! flock -n 9; then
  say "Waiting for another build of the same Horovod wheel (up to $MINUTES minutes)"
  flock 9
fi
if [[ ! -d $cached ]]; then
  say "Building Horovod $HOROVOD_VERSION for TensorFlow $tensorflow (about $MINUTES minutes, only once)"
  work=$(mktemp -d "$CACHE/horovod/build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  build_wheel "$work"
  mv "$work/wheels" "$cached"
fi
exec 9>&-

say "Installing Horovod from $cached (a few seconds)"
run_logged "$LOGS/pip-horovod.log" pip install --no-deps --force-reinstall "$cached"/horovod-*.whl
if ! "$VENV/bin/python" -c 'import horovod.tensorflow as hvd; assert hvd.mpi_built()' \
  >"$LOGS/horovod-import.log" 2>&1; then
  tail -n 5 "$LOGS/horovod-import.log" >&2
  fail "the Horovod in $cached does not work with this TensorFlow and MPI; remove that folder and" \
    "run \`make setup\` again to rebuild it."
fi
stamp horovod "$key"
