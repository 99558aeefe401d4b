# Base images: pulled where a registry answers, else made of Debian's packages. Sourced after
# engine.sh. Nothing but Python, and for some Java or Redis, is in them.

DEBIAN_SUITE=bookworm
base_root=$PWD/.cache/images/root

has_image() { docker image inspect "$1" >/dev/null 2>&1; }

# What no process ever reads.
prune=(--exclude=./var/cache/apt/archives --exclude='./var/lib/apt/lists/*' --exclude=./dev
  --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*'
  --exclude='./usr/share/info/*' --exclude='./var/log/*' --exclude='./var/cache/debconf/*-old'
  --exclude='./proc/*' --exclude='./sys/*' --exclude='./tmp/*' --exclude='./run/*')

import_root() { # TREE IMAGE
  tar -C "$1" --numeric-owner "${prune[@]}" -c . |
    docker import -c 'ENV LANG=C.UTF-8' - "$2" >/dev/null
}

in_root() { # TREE COMMAND…
  local tree=$1
  shift
  # Services must not be started in a tree that is only being filled.
  printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
  chmod +x "$tree/usr/sbin/policy-rc.d"
  cp /etc/resolv.conf "$tree/etc/resolv.conf" 2>/dev/null || true
  DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$tree" "$@"
  rm -f "$tree/usr/sbin/policy-rc.d"
}

bootstrap() {
  [[ -f $base_root.done ]] && return
  ((EUID == 0)) || fail "a base image can only be made by root" "name one: BASE_IMAGE=… make images"
  need debootstrap "What makes a base image" debootstrap
  say "base of Debian $DEBIAN_SUITE by debootstrap, about a minute"
  rm -rf "$base_root"
  debootstrap --variant=minbase --include=ca-certificates,python3-minimal,python3,tzdata \
    "$DEBIAN_SUITE" "$base_root" >"$engine_state/debootstrap.log" 2>&1 ||
    fail "debootstrap failed" "see .cache/images/debootstrap.log"
  touch "$base_root.done"
}

# base_image NAME PACKAGE…: the image NAME of the base and these packages of Debian.
base_image() {
  local name=$1
  shift
  if has_image "$name"; then return; fi
  if [[ -n ${BASE_IMAGE:-} ]]; then
    { echo "FROM $BASE_IMAGE"
      (($# == 0)) || echo "RUN apt-get update && apt-get install -y --no-install-recommends $* &&" \
        "rm -rf /var/lib/apt/lists/*"; } |
      docker build -q -t "$name" - >/dev/null
    return
  fi
  bootstrap
  local tree=$base_root
  if (($# > 0)); then
    say "$name: the base and $*"
    tree=$base_root-${name##*-}
    rm -rf "$tree"
    cp -a "$base_root" "$tree"
    { in_root "$tree" apt-get update -qq &&
      in_root "$tree" apt-get install -y -qq --no-install-recommends "$@"; } \
      >"$engine_state/${name##*-}.log" 2>&1 ||
      fail "$name could not be made" "see .cache/images/${name##*-}.log"
  fi
  import_root "$tree" "$name"
  [[ $tree == "$base_root" ]] || rm -rf "$tree"
}

# choose_base: BASE_IMAGE as given; else one that can be pulled; else empty, for debootstrap.
choose_base() {
  [[ -n ${BASE_IMAGE:-} ]] && return
  has_image sirocco-base && return
  local python=python:3.11-slim-$DEBIAN_SUITE
  if timeout 30 docker pull -q "$python" >/dev/null 2>&1; then
    BASE_IMAGE=$python
  else
    say "no registry of images answers"
  fi
}
