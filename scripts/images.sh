#!/usr/bin/env bash
# Builds the images: sirocco (the services and the command) and sirocco-spark (the Spark jobs).
#
#   scripts/images.sh [sirocco] [spark] [servers]    without a name the first two
#
# servers: sirocco-dev-kafka and sirocco-dev-redis, one node each, for tests and development.
#
# Environment:
#   BASE_IMAGE   with Python 3.11 or newer and apt-get; without it one is pulled, or made by
#                debootstrap where no registry answers
#   TAG          of the images; the version of the project otherwise
#   KERNEL_CPUS  levels of CPU to compile kernels for, best first (x86-64-v3)
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
source scripts/images/engine.sh
source scripts/images/base.sh
source scripts/images/wheels.sh

tag=${TAG:-$(project_version)}
export DOCKER_BUILDKIT=0 # the classic builder is in every engine
declare -A built

build() { # IMAGE DOCKERFILE BASE OPTION…
  local image=$1 file=$2 base=$3 log=$engine_state/$1.log started=$SECONDS before
  shift 3
  say "$image:$tag from $base, log in .cache/images/$image.log"
  before=$(docker image inspect --format '{{.Id}}' "$image:$tag" 2>/dev/null || true)
  docker build -t "$image:$tag" -f "$file" --build-arg "BASE_IMAGE=$base" "$@" . >"$log" 2>&1 || {
    tail -30 "$log" >&2
    fail "$image could not be built" "see .cache/images/$image.log"
  }
  [[ -z $before ]] || forget "$before"
  built[$image]=$((SECONDS - started))
}

# forget ID: removes an image that no name leads to any more; each build would leave half a gigabyte.
forget() {
  [[ $(docker image inspect --format '{{len .RepoTags}}' "$1" 2>/dev/null) == 0 ]] || return 0
  docker rmi "$1" >/dev/null 2>&1 || true
}

# staged IMAGE …: as `build`. The first stage has a name of its own: an engine that is cleaned up
# otherwise forgets what took longest, and one that is not keeps every former one.
staged() {
  local image=$1
  shift
  build "$image-build" "$@" --target build
  build "$image" "$@"
}

build_sirocco() {
  base_image sirocco-base
  own_wheels
  third_party_wheels
  staged sirocco services/Dockerfile sirocco-base --build-arg "KERNEL_CPUS=${KERNEL_CPUS:-x86-64-v3}"
}

build_spark() {
  has_image "sirocco:$tag" || build_sirocco
  base_image sirocco-base-java openjdk-17-jre-headless
  spark_wheels
  connector_jars
  staged sirocco-spark spark-jobs/Dockerfile sirocco-base-java --build-arg "SIROCCO_IMAGE=sirocco:$tag"
}

build_servers() {
  base_image sirocco-base-java openjdk-17-jre-headless
  base_image sirocco-base-redis redis-server
  kafka_jars
  build sirocco-dev-kafka scripts/images/kafka/Dockerfile sirocco-base-java
  build sirocco-dev-redis scripts/images/redis/Dockerfile sirocco-base-redis
}

(($# > 0)) || set -- sirocco spark
scripts/setup.sh run
need_engine
choose_base
for name in "$@"; do
  case $name in
    sirocco | spark | servers) "build_$name" ;;
    *) fail "scripts/images.sh does not know '$name'" "see the head of the file" ;;
  esac
done
say "images"
for image in "${!built[@]}"; do
  [[ $image != *-build ]] || continue
  bytes=$(docker image inspect --format '{{.Size}}' "$image:$tag")
  printf '%-20s %6d MB   %4d s\n' "$image:$tag" $((bytes / 1000000)) \
    $((${built[$image]} + ${built[$image-build]:-0}))
done
