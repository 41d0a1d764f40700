#!/usr/bin/env bash
# Formats Python and C++ code in place.
source "$(dirname "$0")/common.sh"

say "Formatting Python code with ruff and C++ code with clang-format (a second)"
ruff check --fix-only --quiet .
ruff format .
tools/cxx_files.sh | xargs -0 -r clang-format -i
