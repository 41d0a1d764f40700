#!/usr/bin/env bash
# Creates .venv with TensorFlow and requirements.txt; `venv.sh test` and `venv.sh bench` add
# requirements-test.txt and requirements-bench.txt.
source "$(dirname "$0")/common.sh"

case $TENSORFLOW_VERSION in
  2.1[6-9].* | 2.20.*) ;;
  *) fail "TENSORFLOW_VERSION is '$TENSORFLOW_VERSION'; give a full version from 2.16.1 to 2.20.0." ;;
esac

# A .venv that was copied along with the clone still runs the old one's scripts.
if ! "$VENV/bin/python" -c '' 2>/dev/null || ! grep -qF "$VENV" "$VENV/bin/activate"; then
  python=$(tools/find_python.sh)
  say "Creating .venv with $python (a few seconds)"
  "$python" -m venv --clear "$VENV" </dev/null
fi

# install NAME FILE PACKAGE...: installs FILE and the packages, once per content.
install() {
  local name=$1 file=$2 value
  shift 2
  value=$(cat "$file" tools/constraints.txt <(printf '%s\n' "$@") | sha256sum)
  if ! stamped "$name" "$value"; then
    say "Installing Python packages: ${*:-}${*:+ and }$file (up to 3 minutes)"
    run_logged "$LOGS/pip-$name.log" pip install -r "$file" "$@"
    stamp "$name" "$value"
  fi
}

[[ $(installed_version tensorflow) == "$TENSORFLOW_VERSION" ]] || rm -f "$STAMPS/requirements"
install requirements tools/requirements.txt "tensorflow==$TENSORFLOW_VERSION"
if [[ ${1:-} == test || ${1:-} == bench ]]; then
  install "requirements-$1" "tools/requirements-$1.txt"
fi

# Prefer the machine's CMake; fall back on PyPI's.
cmake_version=$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p' || true)
if [[ $(printf '%s\n' 3.25 "${cmake_version:-0}" | sort -V | head -n 1) != 3.25 ]]; then
  say "Installing CMake into .venv (a few seconds)"
  run_logged "$LOGS/pip-cmake.log" pip install -c tools/constraints.txt 'cmake>=3.25'
fi
