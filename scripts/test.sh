#!/usr/bin/env bash
# The whole suite. Arguments go to pytest; without any, all tests run, the quick ones first.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
SIROCCO_TEST_STARTED=$(date +%s)
export SIROCCO_TEST_STARTED

# Kernels beforehand, so that no test pays for them and none times out on them.
scripts/setup.sh test servers helm kernels
scripts/lint.sh
say "set-up and linters took $(($(date +%s) - SIROCCO_TEST_STARTED)) s"

tests=()
if (($# == 0)); then
  for part in unit paper charts simulation integration end_to_end; do
    [[ -n $(find "tests/$part" -name 'test_*.py' -print -quit 2>/dev/null) ]] && tests+=("tests/$part")
  done
fi
# tests/benchmarks is not among them: `make bench` runs those.
PATH=$PWD/.cache/bin:$PATH PYTHONPATH=scripts${PYTHONPATH:+:$PYTHONPATH} \
  exec .venv/bin/python -m pytest -p pytest_stages -rfEs --durations=10 "${tests[@]}" "$@"
