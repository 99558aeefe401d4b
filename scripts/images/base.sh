# Base images: pulled where a registry answers, else made of Debian's packages. Sourced after
# engine.sh. Nothing but Python, and for some Java or Redis, is in them.

DEBIAN_SUITE=bookworm
base_root=$PWD/.cache/images/root

has_image() { docker image inspect "$1" >/dev/null 2>&1; }

# What no process ever reads.
prune=(--exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' --exclude=./dev
  --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*'
  --exclude='./usr/share/info/*' --exclude='./var/log/*' --exclude='./var/cache/debconf/*-old'
  --exclude='./proc/*' --exclude='./sys/*' --exclude='./tmp/*' --exclude='./run/*')

import_root() { # TREE IMAGE
  tar -C "$1" --numeric-owner "${prune[@]}" -c . |
    docker import -c 'ENV LANG=C.UTF-8' - "$2" >/dev/null
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
  if (($# > 0)); then
    base_image sirocco-base
    say "$name: the base and $*"
    # The host's network, as Debian's packages may be reachable in no other way.
    docker build -q --network host -t "$name" - >"$engine_state/$name.log" 2>&1 <<END ||
FROM sirocco-base
RUN export DEBIAN_FRONTEND=noninteractive && apt-get update -qq && \\
    mkdir -p /usr/share/man/man1 && \\
    apt-get install -y -qq --no-install-recommends $* && \\
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /usr/share/doc /usr/share/man
END
      fail "$name could not be made" "see .cache/images/$name.log"
  elif [[ -n ${BASE_IMAGE:-} ]]; then
    has_image "$BASE_IMAGE" || docker pull -q "$BASE_IMAGE" >/dev/null
    docker tag "$BASE_IMAGE" "$name"
  else
    bootstrap
    import_root "$base_root" "$name"
  fi
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
