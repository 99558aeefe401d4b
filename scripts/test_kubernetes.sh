#!/usr/bin/env bash
# The chart on a real cluster: tests/kubernetes. Without KUBECONFIG a cluster of one node is started
# here out of Kubernetes' own components, which takes root, and ended afterwards. With KUBECONFIG the
# cluster is yours; its nodes must have the images (scripts/kind.sh does both with kind).
# Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
source scripts/images/engine.sh
source scripts/images/wheels.sh
source scripts/kubernetes/build.sh
source scripts/kubernetes/cluster.sh

scripts/setup.sh test helm
export PATH=$PWD/.cache/bin:$PATH
command -v helm >/dev/null || fail "Helm is missing" "put helm into the PATH"
SIROCCO_IMAGES_TAG=${TAG:-$(project_version)}
export SIROCCO_IMAGES_TAG
IMAGES=("sirocco:$SIROCCO_IMAGES_TAG" "sirocco-spark:$SIROCCO_IMAGES_TAG"
  "sirocco-dev-kafka:$SIROCCO_IMAGES_TAG" "sirocco-dev-redis:$SIROCCO_IMAGES_TAG")

# The images as files, for containerd, which does not share the engine's.
save_images() {
  local image
  need_engine
  scripts/images.sh sirocco spark servers
  printf 'FROM sirocco-base\nCMD ["sleep", "infinity"]\n' |
    docker build -q -t "sirocco-pause:$SIROCCO_IMAGES_TAG" - >/dev/null
  say "images for the node"
  docker save -o .cache/images/node.tar "${IMAGES[@]}" "sirocco-pause:$SIROCCO_IMAGES_TAG"
  stop_engine
}

own_cluster() {
  ((EUID == 0)) || fail "a cluster on this machine takes root" "or name one: KUBECONFIG=…"
  need_components
  need containerd "containerd" containerd
  need runc "runc" runc
  [[ -x /usr/lib/cni/bridge ]] || install_packages "plugins for pods' networks" \
    containernetworking-plugins
  need nft "nftables" nftables
  need iptables "iptables" iptables
  need conntrack "conntrack" conntrack
  need openssl "OpenSSL" openssl
  if ! command -v kubectl >/dev/null; then
    mkdir -p .cache/bin
    ln -sf "$kubernetes_bin/components" .cache/bin/kubectl
  fi
  save_images
  start_cluster "$SIROCCO_IMAGES_TAG" .cache/images/node.tar
}

[[ -n ${KUBECONFIG:-} ]] || own_cluster
command -v kubectl >/dev/null || fail "kubectl is missing" "put kubectl into the PATH"
kubectl version
kubectl get nodes -o wide
.venv/bin/python -m pytest -rfEs --durations=10 -s tests/kubernetes "$@"
