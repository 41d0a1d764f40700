#!/usr/bin/env bash
# Runs every check: style, the build for GPUs where there is nvcc, the engine's tests, the package's
# tests on one and several ranks.
# Arguments go to pytest.
source "$(dirname "$0")/common.sh"

tools/lint.sh
tools/engine_tests.sh build/engine-tests
tools/cuda_build.sh
say "Running the tests (a few minutes)"
export HVD_P3_ENGINE_SCENARIO=$ROOT/build/engine-tests/engine_scenario
exec python -m pytest "$@" </dev/null
