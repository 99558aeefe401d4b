#!/usr/bin/env bash
# Builds the console from console/ into services/gateway/pages/console, and tests its parts.
#
#   scripts/console.sh          tests and builds; the result is committed
#   scripts/console.sh --check  builds aside and fails if what is committed is something else
set -euo pipefail
cd "$(dirname "$0")/../console"
source ../scripts/system.sh
command -v npm >/dev/null || fail "npm is missing" "apt-get install nodejs npm (node 20 or newer)"

# Packages are exactly those of the lock file.
locked=$(sha256sum package-lock.json | cut -d' ' -f1)
if [[ $(cat node_modules/.locked 2>/dev/null) != "$locked" ]]; then
  say "packages of the console"
  npm ci --silent >&2
  echo "$locked" >node_modules/.locked
fi
export PATH=$PWD/node_modules/.bin:$PATH
# The client is written from the gateway's description, where the gateway can be run.
python=$PWD/../.venv/bin/python
if [[ -x $python ]] && "$python" -c 'import fastapi' 2>/dev/null; then
  (cd .. && PYTHONPATH=.:sdk "$python" scripts/typescript_client.py "$@") ||
    fail "console/src/gateway.ts is not what the gateway describes" "make console"
fi
tsc --noEmit
vitest run --silent >&2
if [[ ${1:-} != --check ]]; then
  vite build
  exit
fi
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
vite build --outDir "$built" --emptyOutDir --logLevel error
diff -rq "$built" ../services/gateway/pages/console >&2 ||
  fail "services/gateway/pages/console is not what console/ builds to" "make console"
say "the console is built from what is committed"
