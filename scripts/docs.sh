#!/usr/bin/env bash
# Builds the site of docs/ into .cache/docs-site; a broken link ends it with an error.
#
#   scripts/docs.sh         builds
#   scripts/docs.sh serve   shows it at http://127.0.0.1:8000 and follows edits
#
# MkDocs has an environment of its own: nothing of it is needed to run or test the system.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
venv=.cache/docs-venv
digest=$({ pwd; cat docs/requirements.txt; } | sha256sum | cut -d' ' -f1)
if [[ $(cat "$venv/.installed" 2>/dev/null) != "$digest" ]]; then
  say "virtual environment $venv with MkDocs"
  rm -rf "$venv"
  "${PYTHON:-python3}" -m venv "$venv" >&2
  "$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet \
    --progress-bar off --require-hashes -r docs/requirements.txt >&2
  echo "$digest" >"$venv/.installed"
fi
export NO_MKDOCS_2_WARNING=1
if [[ ${1:-build} == serve ]]; then
  exec "$venv/bin/python" -m mkdocs serve
fi
"$venv/bin/python" -m mkdocs build --strict
say "the site is in .cache/docs-site"
