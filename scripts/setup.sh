#!/usr/bin/env bash
# Sets up what a command of the Makefile needs. What is there already is left alone.
#
#   scripts/setup.sh run      virtual environment: the engine, the client, the demo's data
#   scripts/setup.sh dev      and what checks and generates code
#   scripts/setup.sh test     and Spark
#   scripts/setup.sh bench    what the benchmarks need: dev and the servers
#   scripts/setup.sh servers  Java, Redis, Maven and the jars of the Kafka broker
#   scripts/setup.sh network  for root: what cuts the networks of processes, to try faults
#   scripts/setup.sh browser  Chromium, for the tests of the console; without root these are left out
#   scripts/setup.sh mqtt     Mosquitto, for the tests of the MQTT sink; likewise
#   scripts/setup.sh helm     Helm, Prometheus and others' definitions, for the tests of the chart
#   scripts/setup.sh kernels  compiles the kernels; beside a level that installs, while it does so
#   scripts/setup.sh demo     the same for those that are imported at the start of a process
#   scripts/setup.sh oldest   .cache/oldest: the oldest grpcio and protobuf that the client promises
#
# Everything said goes to stderr: stdout belongs to the command.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh

venv=.venv
stamps=$venv/.stamps
mkdir -p .cache
# Two commands that start at once must not install into one environment at the same time.
if command -v flock >/dev/null; then
  exec 9>.cache/setup.lock
  flock 9
fi

# Prints an interpreter that is new enough and, if any is, able to make virtual environments.
find_python() {
  local name new_enough=""
  for name in ${PYTHON:-python3.11 python3.12 python3.13 python3.14 python3}; do
    # Running it is the only proof: a version manager's shim is found, but may refuse to run.
    "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    if "$name" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "$name"
      return
    fi
    new_enough=${new_enough:-$name}
  done
  echo "$new_enough"
}

make_venv() {
  local python version
  python=$(find_python)
  [[ -n $python ]] || fail "Python 3.11 or newer is missing" \
    "apt-get install python3 python3-venv, or name an interpreter: make setup PYTHON=/path/to/python3"
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    install_packages "the module that makes Python environments" "python$version-venv"
  fi
  say "virtual environment $venv with $("$python" --version)"
  rm -rf "$venv"
  "$python" -m venv "$venv" >&2
}

# What an installation depends on. The path is part of it: an environment does not survive a move.
digest() {
  { pwd; "$venv/bin/python" --version; cat locks/*.txt pyproject.toml sdk/pyproject.toml; } |
    sha256sum | cut -d' ' -f1
}

# install LEVEL NOTE: also counts as the levels below it.
install() {
  local level=$1 note=$2
  if [[ -x $venv/bin/python ]] && [[ $(cat "$stamps/$level" 2>/dev/null) == "$(digest)" ]]; then
    return
  fi
  # An environment without stamps is kept if it works: pip completes it.
  "$venv/bin/python" -m pip --version >/dev/null 2>&1 || make_venv
  say "Python packages: $note"
  # Bytecode is left to the imports: they need a small part of it.
  local pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet
    --no-compile --progress-bar off)
  # Kernels need nothing else: they are compiled while the rest is on its way.
  "${pip[@]}" --require-hashes -r locks/kernels.txt >&2
  [[ -z $wants_kernels ]] || begin_kernels
  # Without isolation the packages are built by the pinned setuptools instead of the newest one.
  "${pip[@]}" --require-hashes --no-build-isolation -r "locks/$level.txt" >&2
  "${pip[@]}" --no-deps --no-build-isolation -e sdk -e . >&2
  mkdir -p "$stamps"
  local lower
  for lower in run dev test; do
    digest >"$stamps/$lower"
    [[ $lower == "$level" ]] && break
  done
}

# A second environment, which generates the contracts' code and tests it: generated code refuses
# packages older than those it was generated with. It is shared by all that share .cache.
oldest() {
  local digest
  digest=$({ "$venv/bin/python" --version; cat locks/oldest.txt; } | sha256sum | cut -d' ' -f1)
  [[ $(cat .cache/oldest/.stamp 2>/dev/null) == "$digest" ]] && return
  say "Python packages: the oldest that the client promises to work with"
  rm -rf .cache/oldest
  "$venv/bin/python" -m venv .cache/oldest >&2
  local pip=(.cache/oldest/bin/python -m pip --disable-pip-version-check --no-input install --quiet
    --no-compile --progress-bar off)
  "${pip[@]}" --require-hashes -r locks/oldest.txt >&2
  echo "$digest" >.cache/oldest/.stamp
}

compile_kernels() { PYTHONPATH=$PWD exec "$venv/bin/python" -m sirocco.kernels.jit.precompile $wants_kernels >&2; }

begin_kernels() {
  [[ -n $kernels_pid ]] && return
  (compile_kernels) &
  kernels_pid=$!
}

# In the end, whatever the order of the levels.
end_kernels() {
  local pid=$kernels_pid
  kernels_pid=""
  wait "$pid" || fail "the kernels could not be compiled" "see above"
}

# Without root there are no networks to cut, and faults that need them are left out.
network() {
  ((EUID == 0)) || return 0
  need ip "what makes networks" iproute2
  need nft "what cuts them" nftables
}

# Without it the tests in a browser are skipped, and say so.
browser() {
  ((EUID == 0)) || return 0
  (need chromium "Chromium" chromium) || say "tests in a browser are left out"
}

# Without it the tests of MQTT are skipped, and say so.
mqtt() {
  ((EUID == 0)) || return 0
  (need mosquitto "Mosquitto" mosquitto) || say "tests of MQTT are left out"
}

servers() {
  need_java
  need redis-server "Redis" redis-server
  if ! "$venv/bin/python" scripts/kafka_jars.py --present; then
    need mvn "Maven" maven
    say "Kafka broker from Maven Central, about 50 MB"
    "$venv/bin/python" scripts/kafka_jars.py >&2
  fi
}

kernels_pid=""
wants_kernels=""
[[ " $* " != *" demo "* ]] || wants_kernels=--at-start
[[ " $* " != *" kernels "* ]] || wants_kernels=--all
# A failure ends the compilation, too: nobody would wait for it.
trap '[[ -z $kernels_pid ]] || kill "$kernels_pid" 2>/dev/null || true' EXIT

for level in "${@:-run}"; do
  case $level in
    run) install run "the engine and the client" ;;
    dev) install dev "and what checks and generates code" ;;
    test) install test "and Spark (400 MB)" ;;
    servers) servers ;;
    bench) install dev "and what checks and generates code"; servers ;;
    network) network ;;
    browser) browser ;;
    mqtt) mqtt ;;
    oldest) oldest ;;
    helm) need_helm; need_crds; need_prometheus ;;
    kernels | demo) begin_kernels ;;
    *) fail "scripts/setup.sh does not know '$level'" "see the head of the file" ;;
  esac
done
[[ -z $kernels_pid ]] || end_kernels
