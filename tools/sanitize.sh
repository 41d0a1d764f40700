#!/usr/bin/env bash
# Runs the engine's tests under ThreadSanitizer, and under AddressSanitizer with
# UndefinedBehaviorSanitizer.
source "$(dirname "$0")/common.sh"

probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
echo 'int main() {}' >"$probe/main.cc"

# choose SANITIZER: sets `compiler` to one whose programs run with SANITIZER here, and
# `launcher` to what they must be started with (older ThreadSanitizers need the
# address space not to be randomized much).
choose() {
  for launcher in "" "setarch -R"; do
    for compiler in ${CXX:-g++ clang++}; do
      if "$compiler" "-fsanitize=$1" "$probe/main.cc" -o "$probe/main" >/dev/null 2>&1 &&
        $launcher "$probe/main" >/dev/null 2>&1; then
        return
      fi
    done
  done
  fail "neither of ${CXX:-g++ clang++} builds programs that run with -fsanitize=$1 on this machine;" \
    "install clang (\`apt-get install clang\`)."
}

for sanitizer in thread address; do
  choose "$sanitizer"
  folder=build/engine-tests-$sanitizer-$(basename "$compiler")
  tools/engine_tests.sh "$folder" "-DHVD_P3_SANITIZE=$sanitizer" "-DCMAKE_CXX_COMPILER=$compiler"
  say "Running the engine's tests with $compiler's -fsanitize=$sanitizer (a few minutes)"
  HVD_P3_ENGINE_SCENARIO=$ROOT/$folder/engine_scenario \
    $launcher python -m pytest tests/engine "$@" </dev/null
done
