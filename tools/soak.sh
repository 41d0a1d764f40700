#!/usr/bin/env bash
# Runs the soak test on 4 ranks. Arguments are those of tests/soak/soak.py.
source "$(dirname "$0")/common.sh"

say "Reducing slices on 4 ranks (some minutes)"
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-3}
# Four ranks on a smaller machine: one that waits lets the others run.
export OMPI_MCA_mpi_yield_when_idle=1
exec horovodrun -np 4 --mpi python tests/soak/soak.py "$@" </dev/null
