#!/usr/bin/env bash
# Generates the Python code of proto/, or writes it into the directory that is given, for the test
# that compares the two. What clients call goes into sdk/sirocco_api, which ships to them; what our
# processes say to each other goes into sirocco/internal_api.
# The generator is of the oldest grpcio and protobuf that the client promises: older ones than the
# generator's refuse its code.
# The contracts' package is sirocco.v1; the Python packages have other names, because the engine is
# called `sirocco`: hence the rewritten imports.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:-.}
clients="balance_service cluster_service columns errors map_service publish_service query query_service"
clients+=" receive_service search_service trace"
scripts/setup.sh oldest
python=.cache/oldest/bin/python
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$python" -m grpc_tools.protoc -I proto --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" \
  proto/sirocco/v1/*.proto
public=$target/sdk/sirocco_api internal=$target/sirocco/internal_api
mkdir -p "$public/v1" "$internal/v1"
rm -f "$public"/v1/*_pb2* "$internal"/v1/*_pb2*
for file in "$out"/sirocco/v1/*; do
  name=$(basename "$file")
  if [[ " $clients " == *" ${name%%_pb2*} "* ]]; then cp "$file" "$public/v1/"; else cp "$file" "$internal/v1/"; fi
done
sed -i -E "s/from sirocco\.v1 import (${clients// /|})_pb2/from sirocco_api.v1 import \1_pb2/" \
  "$public"/v1/*_pb2* "$internal"/v1/*_pb2*
sed -i -E 's/from sirocco\.v1 import/from sirocco.internal_api.v1 import/' "$internal"/v1/*_pb2*
touch "$public/__init__.py" "$public/v1/__init__.py" "$internal/__init__.py" "$internal/v1/__init__.py"
