#!/usr/bin/env bash
# What a developer runs before each commit: linters, types, and the unit tests of what has changed
# since BASE (a revision; main by default). The whole suite is `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
base=${BASE:-$(git rev-parse --verify -q main || git rev-parse HEAD)}
base=$(git merge-base "$base" HEAD)

scripts/lint.sh

# Prints the tests of the files that are named on standard input: a folder of the code is tested by
# the folder of the same name below tests/unit, or by the nearest above it.
tests_of() {
  while IFS= read -r path; do
    case $path in
      tests/unit/*test_*.py | tests/paper/test_*.py)
        echo "$path" tests/unit/test_waits.py tests/unit/test_patched_constants.py
        ;;
      sirocco/*/*.py) nearest "tests/unit/$(dirname "${path#sirocco/}")" ;;
      services/*.py) nearest "tests/unit/$(dirname "$path")" ;;
      sdk/*.py) nearest "tests/unit/sdk/$(dirname "${path#sdk/sirocco_client/}")" ;;
      loadgen/*.py) echo tests/unit/loadgen ;;
      benchmarks/*.py) echo tests/unit/benchmarks ;;
      proto/*) echo tests/unit/codec ;;
      *.md) echo tests/unit/test_document_links.py tests/unit/test_decisions.py ;;
      tests/*.py) echo tests/unit/test_waits.py tests/unit/test_patched_constants.py ;;
    esac
  done | tr ' ' '\n' | sort -u
}
nearest() {
  local folder=$1
  until [[ -d $folder ]]; do folder=$(dirname "$folder"); done
  echo "$folder"
}
changed=$({ git diff --name-only "$base"; git ls-files --others --exclude-standard; } | sort -u)
mapfile -t found < <(tests_of <<<"$changed")
tests=(tests/unit/test_layers.py tests/unit/test_contracts.py)
# What was removed, and folders that have no tests of their own, are left out.
for each in "${found[@]}"; do [[ -e $each ]] && tests+=("$each"); done
say "unit tests: ${tests[*]}"
PYTHONPATH=$PWD:$PWD/sdk .venv/bin/python -m pytest -n auto --maxprocesses=4 --dist=worksteal "${tests[@]}"
