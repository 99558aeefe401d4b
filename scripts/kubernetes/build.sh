# Kubernetes' own components, built from their Go modules (components/go.mod pins them). Sourced from
# the root of the repository, after scripts/system.sh.

KUBERNETES_VERSION=v1.33.13
kubernetes_bin=$PWD/.cache/kubernetes

# need_components: two binaries in .cache/kubernetes; an hour on two busy cores, once.
need_components() {
  local source=scripts/kubernetes/components wanted
  wanted=$(cat "$source"/*.go "$source"/dns/*.go "$source"/go.mod "$source"/go.sum | sha256sum)
  if [[ $(cat "$kubernetes_bin/digest" 2>/dev/null) == "$wanted" ]]; then return; fi
  need go "Go, to build Kubernetes" golang-go
  mkdir -p "$kubernetes_bin"
  local version=k8s.io/component-base/version flags
  flags="-s -w -X $version.gitVersion=$KUBERNETES_VERSION -X $version.gitTreeState=clean"
  flags+=" -X $version.gitMajor=1 -X $version.gitMinor=$(cut -d. -f2 <<<"$KUBERNETES_VERSION")"
  say "Kubernetes $KUBERNETES_VERSION from its Go modules, some 2,700 packages"
  # One package at a time and behind everybody else: this machine may have other work.
  (
    cd "$source"
    export GOTOOLCHAIN=auto GOFLAGS="-mod=mod ${KUBERNETES_GOFLAGS:--p=1}" CGO_ENABLED=0
    nice go build -trimpath -ldflags "$flags" -o "$kubernetes_bin/components" . &&
      nice go build -trimpath -ldflags "-s -w" -o "$kubernetes_bin/dns" ./dns
  ) >&2 || fail "Kubernetes could not be built" "see what Go said above"
  echo "$wanted" >"$kubernetes_bin/digest"
}
