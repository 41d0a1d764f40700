#!/bin/sh
# Stands in for ssh: Open MPI starts its daemon on an emulated host with
#   remote_shell.sh ADDRESS COMMAND...
# HVD_P3_BENCHMARK_NAMESPACES holds lines "ADDRESS NAMESPACE NAME". The host gets a host name and a
# temporary folder of its own: Open MPI's session files would collide otherwise.
set -eu
address=$1
shift
line=$(printf '%s\n' "$HVD_P3_BENCHMARK_NAMESPACES" | grep "^$address ") || {
  echo "remote_shell.sh: no emulated host has the address $address" >&2
  exit 1
}
# shellcheck disable=SC2086
set -- $line "$*"
TMPDIR="$HVD_P3_BENCHMARK_TEMPORARY/$3"
mkdir -p "$TMPDIR"
export TMPDIR
# `ip netns exec` gives its program mounts of its own.
# shellcheck disable=SC2016
exec ip netns exec "$2" unshare --uts sh -c \
  'mount --bind "$HVD_P3_BENCHMARK_TEMPORARY/hosts" /etc/hosts && hostname "$0" && exec sh -c "$1"' \
  "$3" "$4"
