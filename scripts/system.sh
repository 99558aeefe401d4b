# Tools that do not come from Python: found, or installed where that is possible. Sourced.

say() { echo "== $*" >&2; }

# fail WHAT HOW: ends with both.
fail() {
  echo "error: $1" >&2
  echo "  to get it: $2" >&2
  exit 1
}

# install_packages WHAT PACKAGE…: by apt when we are root.
install_packages() {
  local what=$1
  shift
  command -v apt-get >/dev/null || fail "$what is missing" "install your system's package of $*"
  ((EUID == 0)) || fail "$what is missing" "sudo apt-get install $*"
  say "$what: apt-get install $*"
  export DEBIAN_FRONTEND=noninteractive
  # The lists of a fresh machine are empty or old; a source of no concern to us may be out of reach.
  apt-get update -qq >&2 || true
  apt-get install -y -qq --no-install-recommends "$@" >&2 ||
    fail "$what is missing and apt-get could not install it" "apt-get install $*"
}

# need COMMAND WHAT PACKAGE
need() {
  command -v "$1" >/dev/null && return
  install_packages "$2" "$3"
  hash -r
  command -v "$1" >/dev/null || fail "$2 is missing" "put $1 into the PATH"
}

java_version() { java -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -1 || true; }

# Kafka's broker and Spark run on 17 and newer.
need_java() {
  local version
  version=$(java_version)
  if ((${version:-0} < 17)); then
    install_packages "Java 17 or newer" default-jre-headless
    hash -r
    version=$(java_version)
    ((${version:-0} >= 17)) ||
      fail "Java 17 or newer is missing (found: ${version:-none})" \
        "apt-get install openjdk-17-jre-headless, and put it first in the PATH"
  fi
}

# Go 1.21 and newer fetch the compiler that a module asks for; older ones get the last Helm that
# they can build themselves.
HELM_VERSION=v3.22.0
HELM_VERSION_OLD_GO=v3.13.3

find_helm() { PATH=$PWD/.cache/bin:$PATH command -v helm || true; }

# Helm is for the tests of the chart alone: where it cannot be had they are skipped, and say so.
need_helm() {
  [[ -n $(find_helm) ]] && return
  if ! command -v go >/dev/null && ((EUID == 0)) && command -v apt-get >/dev/null; then
    (install_packages "Go, to build Helm" golang-go) || true
    hash -r
  fi
  if ! command -v go >/dev/null; then
    say "Helm and Go are missing, so the tests of the chart will be skipped; install either"
    return
  fi
  local minor version=$HELM_VERSION
  minor=$(go version | sed -nE 's/.*go1\.([0-9]+).*/\1/p')
  ((${minor:-0} >= 21)) || version=$HELM_VERSION_OLD_GO
  say "Helm $version from its Go module, a minute or two"
  if ! GOTOOLCHAIN=auto GOBIN=$PWD/.cache/bin go install "helm.sh/helm/v3/cmd/helm@$version" >&2; then
    say "Helm could not be built, so the tests of the chart will be skipped; put helm into the PATH"
  fi
}

# Definitions of what the chart makes for others: KEDA, and Prometheus' operator (the last version
# that the proxy has). For the tests of the chart, which validate its manifests.
KEDA_VERSION=v2.16.1
PROMETHEUS_OPERATOR_VERSION=v0.79.2

need_crds() {
  local crds=.cache/crds
  [[ -f $crds/$KEDA_VERSION && -f $crds/$PROMETHEUS_OPERATOR_VERSION ]] && return
  if ! command -v go >/dev/null; then
    say "Go is missing, so manifests for KEDA and Prometheus' operator will not be validated"
    return
  fi
  say "definitions of KEDA and Prometheus' operator from their Go modules"
  rm -rf "$crds"
  mkdir -p "$crds"
  crds_of github.com/kedacore/keda/v2 "$KEDA_VERSION" \
    config/crd/bases/keda.sh_scaledobjects.yaml &&
    crds_of github.com/prometheus-operator/prometheus-operator "$PROMETHEUS_OPERATOR_VERSION" \
      example/prometheus-operator-crd/monitoring.coreos.com_{podmonitors,servicemonitors,prometheusrules}.yaml ||
    say "they could not be had, so manifests for KEDA and Prometheus' operator will not be validated"
}

crds_of() { # MODULE VERSION FILE…
  local module=$1 version=$2 directory file
  shift 2
  directory=$(cd /tmp && GOFLAGS=-mod=mod go mod download -json "$module@$version" |
    sed -nE 's/.*"Dir": "(.*)".*/\1/p')
  [[ -n $directory ]] || return 1
  for file in "$@"; do
    cp "$directory/$file" .cache/crds/ || return 1
  done
  touch ".cache/crds/$version"
}

find_prometheus() { PATH=$PWD/.cache/prometheus/usr/bin:$PATH command -v promtool || true; }

# Prometheus is for the tests of dashboards and alerts alone. Its package is unpacked rather than
# installed: that needs no root, and starts no server of its own.
need_prometheus() {
  [[ -n $(find_prometheus) ]] && return
  say "Prometheus from the system's package"
  if ! fetch_prometheus; then
    rm -rf .cache/prometheus
    say "it could not be had, so the tests of dashboards and alerts will be skipped; put prometheus and promtool into the PATH"
  fi
}

fetch_prometheus() {
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
  mkdir -p .cache/prometheus
  if ! (cd .cache/prometheus && apt-get download -qq prometheus >&2); then
    # The lists of a fresh machine are empty.
    ((EUID == 0)) && apt-get update -qq >&2
    (cd .cache/prometheus && apt-get download -qq prometheus >&2) || return 1
  fi
  dpkg-deb -x .cache/prometheus/prometheus_*.deb .cache/prometheus &&
    rm -f .cache/prometheus/prometheus_*.deb && [[ -n $(find_prometheus) ]]
}
