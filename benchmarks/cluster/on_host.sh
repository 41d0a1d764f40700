#!/bin/sh
# Runs a program on an emulated host:
#   on_host.sh NAMESPACE NAME COMMAND...
# with its host name, and the names of all hosts from $HVD_P3_BENCHMARK_TEMPORARY/hosts.
set -eu
namespace=$1
shift
# `ip netns exec` gives its program mounts of its own.
# shellcheck disable=SC2016
exec ip netns exec "$namespace" unshare --uts sh -c \
  'mount --bind "$HVD_P3_BENCHMARK_TEMPORARY/hosts" /etc/hosts && hostname "$0" && exec "$@"' "$@"
