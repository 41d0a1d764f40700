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
exec "$(dirname "$0")/on_host.sh" "$2" "$3" sh -c "$4"
