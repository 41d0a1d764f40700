#!/usr/bin/env bash
# Prints the names of all C++ files of this project, separated by NUL.
source "$(dirname "$0")/common.sh"

folders=(csrc)
[[ ! -d tests/engine ]] || folders+=(tests/engine)
find "${folders[@]}" -type f \( -name '*.cc' -o -name '*.h' \) -print0 | sort -z
