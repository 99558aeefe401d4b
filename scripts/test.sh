#!/usr/bin/env bash
# The whole suite. Arguments go to pytest; without any, all tests run, the quick ones first.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
source scripts/images/engine.sh
SIROCCO_TEST_STARTED=$(date +%s)
export SIROCCO_TEST_STARTED

# Kernels beforehand, so that no test pays for them and none times out on them.
scripts/setup.sh test oldest servers helm kernels
scripts/lint.sh
say "set-up and linters took $(($(date +%s) - SIROCCO_TEST_STARTED)) s"

run() {
  PATH=$PWD/.cache/bin:$PATH PYTHONPATH=scripts${PYTHONPATH:+:$PYTHONPATH} \
    .venv/bin/python -m pytest -p pytest_stages -rfEs --durations=10 "$@"
}

if (($# > 0)); then
  run "$@"
  exit
fi
# benchmarks is not among them: `make bench` runs those.
tests=()
for part in unit paper charts simulation integration end_to_end; do
  [[ -n $(find "tests/$part" -name 'test_*.py' -print -quit 2>/dev/null) ]] && tests+=("tests/$part")
done
# First what runs on one core, on several at once; then, one by one, what takes all of them. Each
# part runs, whatever failed before. A process takes half a gigabyte: four are enough.
status=0
run -n auto --maxprocesses=4 --dist=worksteal -m "not alone" "${tests[@]}" || status=$?
# The system out of its images, which the first of these tests builds: where a Docker engine answers
# or is installed. Elsewhere they are skipped, and say why.
if try_engine; then
  export SIROCCO_IMAGES_TAG=test SIROCCO_IMAGES_BUILD="sirocco servers"
else
  export SIROCCO_IMAGES_MISSING=$engine_missing
fi
run tests/images || status=$?
stop_engine
run -m alone "${tests[@]}" || status=$?
exit "$status"
