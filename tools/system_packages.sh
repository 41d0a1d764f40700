#!/usr/bin/env bash
# Makes sure the compiler, MPI, ssh and Python that hvd_p3 needs are on this machine:
# installs the Debian packages that are missing if it may, or says which they are.
# `system_packages.sh test` and `bench` also look for what tests and benchmarks need.
source "$(dirname "$0")/common.sh"

have() { command -v "$1" >/dev/null 2>&1; }

missing=()
have c++ || have g++ || have clang++ || missing+=(g++)
have make || missing+=(make)
have flock || missing+=(util-linux)
# An MPI is complete with both a compiler and a launcher; MPICH will do as well.
have mpicxx || missing+=(libopenmpi-dev)
have mpirun || missing+=(openmpi-bin)
# Open MPI's mpirun stops without ssh even when all ranks run on this machine.
have ssh || have rsh || missing+=(openssh-client)

# The emulated cluster of the benchmarks, which tests use too.
if [[ ${1:-} == test || ${1:-} == bench ]]; then
  { have ip && have tc; } || missing+=(iproute2)
fi
if [[ ! -x $VENV/bin/python ]]; then
  python=$(tools/find_python.sh 2>/dev/null || true)
  if [[ -z $python && -z ${PYTHON:-} ]]; then
    missing+=(python3.11 python3.11-venv python3.11-dev)
  elif [[ -n $python ]]; then
    name=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=("$name-venv")
    headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [[ -f $headers/Python.h ]] || missing+=("$name-dev")
  fi
fi

((${#missing[@]})) || exit 0

command="apt-get install -y --no-install-recommends ${missing[*]}"
if [[ $(id -u) != 0 ]] || ! have apt-get; then
  fail "this machine lacks ${missing[*]} (Debian's names); run \`sudo $command\`, or install them" \
    "another way, and try again."
fi
say "Installing system packages: ${missing[*]} (about a minute)"
export DEBIAN_FRONTEND=noninteractive
# A third-party repository that cannot be reached need not stop the installation.
run_logged "$LOGS/apt-update.log" bash -c 'apt-get update || true'
# shellcheck disable=SC2086
run_logged "$LOGS/apt-install.log" $command
