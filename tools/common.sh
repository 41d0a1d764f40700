# Settings and functions shared by the scripts in tools/. Source it, do not run it.
# shellcheck shell=bash disable=SC2034
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv
STAMPS=$VENV/stamps
LOGS=$ROOT/build/logs
CACHE=${HVD_P3_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/hvd_p3}
TENSORFLOW_VERSION=${TENSORFLOW_VERSION:-2.20.0}
JOBS=$(nproc)
cd "$ROOT"

export PATH=$VENV/bin:$PATH
export PIP_DISABLE_PIP_VERSION_CHECK=1
unset MAKEFLAGS MFLAGS MAKELEVEL PYTHONHOME PYTHONPATH
if [[ $(id -u) == 0 ]]; then
  # Open MPI's mpirun refuses root otherwise (horovodrun has its own flag).
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export PIP_ROOT_USER_ACTION=ignore
fi
if ((JOBS < 4)); then
  # With more ranks than cores, a rank that waits must let the others run (10 times faster).
  export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}
fi

say() { printf '==> %s\n' "$*"; }

fail() {
  printf 'hvd_p3: %s\n' "$*" >&2
  exit 1
}

# last_news LOG: the last line with a percentage in LOG, or else its last line.
last_news() {
  { grep -aE '^ *\[ *[0-9]+%\]' "$1" || tail -n 1 "$1"; } | tail -n 1 | cut -c 1-90
}

# run_logged LOG COMMAND...: runs the command with its output in LOG, shows where it
# is every 20 s, and if the command fails LOG's end.
run_logged() {
  local log=$1 status=0 heartbeat
  shift
  mkdir -p "$(dirname "$log")"
  : >"$log"
  (
    seconds=0
    while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
      seconds=$((seconds + 1))
      ((seconds % 20)) || printf '    %3d s: %s\n' "$seconds" "$(last_news "$log")"
    done
  ) &
  heartbeat=$!
  "$@" </dev/null >"$log" 2>&1 || status=$?
  kill "$heartbeat" 2>/dev/null || true
  wait "$heartbeat" 2>/dev/null || true
  if ((status)); then
    tail -n 60 "$log" >&2
    fail "this command failed, and its full output is in $log: $*"
  fi
}

# stamped NAME VALUE: whether step NAME was last done for VALUE. `stamp` records it.
stamped() { [[ -f $STAMPS/$1 && $(<"$STAMPS/$1") == "$2" ]]; }
stamp() { mkdir -p "$STAMPS" && printf '%s\n' "$2" >"$STAMPS/$1"; }

# installed_version PACKAGE: the version in the virtual environment, or nothing.
installed_version() {
  local info
  for info in "$VENV"/lib/python3*/site-packages/"$1"-[0-9]*.dist-info; do
    [[ -d $info ]] || continue
    info=${info%.dist-info}
    printf '%s\n' "${info##*-}"
  done
}

# mpi_version: the MPI that mpicxx compiles for, such as openmpi-4.1.4.
mpi_version() {
  local text
  text=$(mpicxx -showme:version 2>/dev/null || mpicxx -v 2>&1 || true)
  if [[ $text =~ Open\ MPI\ ([0-9a-z.]+) ]]; then
    printf 'openmpi-%s\n' "${BASH_REMATCH[1]}"
  elif [[ $text =~ MPICH\ [Vv]ersion:?\ ?([0-9a-z.]+) ]]; then
    printf 'mpich-%s\n' "${BASH_REMATCH[1]}"
  else
    printf 'mpi-%s\n' "$(printf '%s' "$text" | sha256sum | cut -c 1-12)"
  fi
}
