#!/usr/bin/env bash
# Prints the path of the Python to build with: $PYTHON, python3.11, or a python3
# that TensorFlow and Horovod support.
source "$(dirname "$0")/common.sh"

PATH=${PATH#"$VENV/bin:"}

supported() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; }

candidates=(python3.11 python3)
[[ -z ${PYTHON:-} ]] || candidates=("$PYTHON")
for candidate in "${candidates[@]}"; do
  if supported "$candidate"; then
    command -v "$candidate"
    exit 0
  fi
done
fail "no usable Python (tried ${candidates[*]}); hvd_p3 needs Python 3.10 to 3.12: install python3.11," \
  "or run \`make setup PYTHON=/path/to/python\`."
