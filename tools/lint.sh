#!/usr/bin/env bash
# Checks the style of Python and C++ code; `make format` repairs what it can.
source "$(dirname "$0")/common.sh"

say "Checking Python code with ruff (a second)"
ruff check .
ruff format --check .

say "Checking C++ code with clang-format (a second)"
tools/cxx_files.sh | xargs -0 -r clang-format --dry-run -Werror
