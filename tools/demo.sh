#!/usr/bin/env bash
# Trains the smallest example on two ranks.
source "$(dirname "$0")/common.sh"

say "Training examples/keras_digits.py on 2 ranks (about a minute)"
# Without TensorFlow's messages about the GPUs and CPU instructions it did not find.
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-3}
# Without horovodrun's marks of the rank, and the empty lines that it adds.
horovodrun -np 2 python examples/keras_digits.py </dev/null 2>&1 |
  sed -u -E 's/\[1,[0-9]+\]<std(out|err)>://g; /^[[:space:]]*$/d'
