#!/usr/bin/env bash
# Linter, formatter, spelling and type checker; all of them run before it fails.
set -uo pipefail
# As modules: the scripts in .venv/bin hold a path and break when the directory moves.
cd "$(dirname "$0")/.."
source scripts/system.sh
status=0
check() {
  say "$1"
  shift
  "$@" >&2 || status=1
}
check "ruff check" .venv/bin/python -m ruff check --quiet
check "ruff format --check" .venv/bin/python -m ruff format --check --quiet
check "codespell" .venv/bin/python -m codespell_lib
check "buf lint" .venv/bin/buf lint proto
check "buf format" .venv/bin/buf format --diff --exit-code proto
check "mypy" .venv/bin/python -m mypy --no-error-summary
exit $status
