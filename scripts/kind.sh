#!/usr/bin/env bash
# The scenario of scripts/test_kubernetes.sh on a cluster that kind makes, for machines whose engine
# can pull kind's node image. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
source scripts/images/engine.sh
source scripts/images/wheels.sh

name=sirocco-test
command -v kind >/dev/null || fail "kind is missing" "go install sigs.k8s.io/kind@latest"
need_engine
scripts/images.sh sirocco spark servers
tag=${TAG:-$(project_version)}
KUBECONFIG=$(mktemp)
export KUBECONFIG
trap 'kind delete cluster --name "$name"; rm -f "$KUBECONFIG"; stop_engine' EXIT
kind create cluster --name "$name" --wait 180s
kind load docker-image --name "$name" "sirocco:$tag" "sirocco-spark:$tag" \
  "sirocco-dev-kafka:$tag" "sirocco-dev-redis:$tag"
scripts/test_kubernetes.sh "$@"
