#!/usr/bin/env bash
# Prints the names of all C++ and CUDA files of this project, separated by NUL.
source "$(dirname "$0")/common.sh"

folders=(csrc)
for folder in tests/engine tests/gpu tests/kernels tests/nccl; do
  [[ ! -d $folder ]] || folders+=("$folder")
done
find "${folders[@]}" -type f \( -name '*.cc' -o -name '*.cu' -o -name '*.h' \) -print0 | sort -z
