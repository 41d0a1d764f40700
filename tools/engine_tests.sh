#!/usr/bin/env bash
# Builds tests/engine's executable without MPI, TensorFlow or Python:
#   engine_tests.sh FOLDER [CMAKE ARGUMENT...]
source "$(dirname "$0")/common.sh"

folder=$1
shift

build() {
  cmake -S . -B "$folder" -DHVD_P3_ENGINE_ONLY=ON -DHVD_P3_BUILD_TESTS=ON "$@" &&
    cmake --build "$folder" --parallel "$JOBS"
}

say "Building the engine's tests in $folder (up to a minute)"
run_logged "$LOGS/$(basename "$folder").log" build "$@"
