#!/usr/bin/env bash
# Generates the Python code of proto/ into sdk/sirocco_api, the one place where it lives, or into the
# directory that is given, for the test that compares the two.
# The generator is of the oldest grpcio and protobuf that the client promises: older ones than the
# generator's refuse its code.
# The contracts' package is sirocco.v1; the Python package is sirocco_api.v1, because the engine is
# called `sirocco`: hence the rewritten imports.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:-sdk/sirocco_api}
scripts/setup.sh oldest
python=.cache/oldest/bin/python
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$python" -m grpc_tools.protoc -I proto --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" \
  proto/sirocco/v1/*.proto
sed -i -E 's/from sirocco\.v1 import/from sirocco_api.v1 import/' "$out"/sirocco/v1/*.py "$out"/sirocco/v1/*.pyi
mkdir -p "$target/v1"
rm -f "$target"/v1/*_pb2*
cp "$out"/sirocco/v1/* "$target/v1/"
touch "$target/__init__.py" "$target/v1/__init__.py"
