#!/usr/bin/env bash
# Measures hvd_p3 beside stock Horovod on an emulated cluster. Arguments go to the benchmark.
source "$(dirname "$0")/common.sh"

say "Measuring; the last lines say where the results are"
exec python -m benchmarks "$@" </dev/null
