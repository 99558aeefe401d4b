# A Docker engine: the one that runs, else Debian's, started here and stopped at the end. Sourced
# from the root of the repository, after scripts/system.sh.

engine_state=$PWD/.cache/images
engine_ours=""

engine_answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

stop_engine() {
  [[ -n $engine_ours ]] || return 0
  kill "$engine_ours" 2>/dev/null || true
  wait "$engine_ours" 2>/dev/null || true
  engine_ours=""
}

# need_engine: ends with a word where no engine can run.
need_engine() {
  mkdir -p "$engine_state"
  if command -v docker >/dev/null && engine_answers; then return; fi
  [[ -z ${DOCKER_HOST:-} ]] || fail "no engine answers at DOCKER_HOST" "start it, or unset DOCKER_HOST"
  ((EUID == 0)) || fail "no Docker engine answers" "start one, or run this as root"
  need dockerd "A Docker engine" docker.io
  need iptables "What the engine's networks are made with" iptables
  say "starting dockerd, log in .cache/images/dockerd.log"
  dockerd >>"$engine_state/dockerd.log" 2>&1 &
  engine_ours=$!
  trap stop_engine EXIT
  local tries
  for ((tries = 0; tries < 120; tries++)); do
    engine_answers && return
    kill -0 "$engine_ours" 2>/dev/null || break
    sleep 0.5
  done
  tail -5 "$engine_state/dockerd.log" >&2
  fail "dockerd does not come up" "see .cache/images/dockerd.log"
}
