# A Docker engine: the one that runs, else Debian's, started here and stopped at the end. Sourced
# from the root of the repository, after scripts/system.sh.

engine_state=$PWD/.cache/images
engine_ours=""

# A host that does not answer at all would be waited for long.
engine_answers() {
  command -v docker >/dev/null &&
    timeout 30 docker version --format '{{.Server.Version}}' >/dev/null 2>&1
}

stop_engine() {
  [[ -n $engine_ours ]] || return 0
  kill "$engine_ours" 2>/dev/null || true
  wait "$engine_ours" 2>/dev/null || true
  engine_ours=""
}

# start_engine: dockerd, for as long as this script runs; 1 if it does not come up.
start_engine() {
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
  stop_engine
  return 1
}

# need_engine: installs what is missing; ends with a word where no engine can run.
need_engine() {
  mkdir -p "$engine_state"
  if engine_answers; then return; fi
  [[ -z ${DOCKER_HOST:-} ]] || fail "no engine answers at DOCKER_HOST" "start it, or unset DOCKER_HOST"
  ((EUID == 0)) || fail "no Docker engine answers" "start one, or run this as root"
  need dockerd "A Docker engine" docker.io
  need iptables "What the engine's networks are made with" iptables
  start_engine || fail "dockerd does not come up" "see .cache/images/dockerd.log"
}

# try_engine: the engine that answers, or one that is installed; nothing is installed for it. Where
# none can run it returns 1, and engine_missing says why.
try_engine() {
  mkdir -p "$engine_state"
  engine_missing=""
  if [[ $(uname) != Linux ]]; then
    engine_missing="the tests speak to containers by their addresses, which only Linux lets them"
  elif engine_answers; then
    return
  elif [[ -n ${DOCKER_HOST:-} ]]; then
    engine_missing="no Docker engine answers at DOCKER_HOST"
  elif ! command -v dockerd >/dev/null || ! command -v iptables >/dev/null; then
    engine_missing="no Docker engine answers, and none is installed"
  elif ((EUID != 0)); then
    engine_missing="no Docker engine answers, and to start one takes root"
  elif ! start_engine; then
    engine_missing="dockerd is installed and does not come up: .cache/images/dockerd.log"
  fi
  [[ -z $engine_missing ]]
}
