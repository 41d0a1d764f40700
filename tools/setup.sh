#!/usr/bin/env bash
# Prepares everything hvd_p3 needs to run; `setup.sh test` also what its tests need.
# Does only what is missing or has changed.
source "$(dirname "$0")/common.sh"

tools/system_packages.sh "$@"
tools/venv.sh "$@"
tools/horovod.sh
tools/build.sh
say "Ready: TensorFlow $(installed_version tensorflow), Horovod $(installed_version horovod)," \
  "hvd_p3 $(installed_version hvd_p3) in .venv"
