#!/usr/bin/env bash
# The whole suite. Arguments go to pytest; without any, all tests run, the quick ones first.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
source scripts/images/engine.sh
SIROCCO_TEST_STARTED=$(date +%s)
export SIROCCO_TEST_STARTED

# Kernels beforehand, so that no test pays for them and none times out on them.
scripts/setup.sh test oldest servers helm kernels
scripts/lint.sh
say "set-up and linters took $(($(date +%s) - SIROCCO_TEST_STARTED)) s"

# env takes its place as a process, as nice does: $! below is the pytest that runs the worlds.
pytest=(env "PATH=$PWD/.cache/bin:$PATH" "PYTHONPATH=scripts${PYTHONPATH:+:$PYTHONPATH}"
  .venv/bin/python -m pytest -p pytest_stages -rfEs --durations=10)
run() { "${pytest[@]}" "$@"; }

# Worlds of the simulator run in virtual time: no result depends on how long one takes. So they use
# the moments in which tests on real parts wait for leases, brokers and processes: at the lowest
# priority they take next to nothing of the cores from those. While the others work a world stands
# still, for minutes at times, which is no failure: the limit of a test is that of the whole stage.
worlds_pid=""
worlds_log=""
begin_worlds() {
  worlds_log=$(mktemp)
  nice -n 19 "${pytest[@]}" -n auto --maxprocesses=4 --dist=worksteal --timeout=3600 \
    tests/simulation >"$worlds_log" 2>&1 &
  worlds_pid=$!
  # An interrupted run leaves nothing behind: no worlds, and no engine that was started here.
  trap stop_worlds EXIT
}

stop_worlds() {
  [[ -z $worlds_pid ]] || kill "$worlds_pid" 2>/dev/null || true
  rm -f "$worlds_log"
  stop_engine
}

end_worlds() {
  local failed=0
  wait "$worlds_pid" || failed=$?
  worlds_pid=""
  say "the simulator's worlds, which ran beside the tests above"
  cat "$worlds_log"
  return "$failed"
}

if (($# > 0)); then
  run "$@"
  exit
fi
# benchmarks is not among them: `make bench` runs those.
tests=()
for part in unit paper charts integration end_to_end; do
  [[ -n $(find "tests/$part" -name 'test_*.py' -print -quit 2>/dev/null) ]] && tests+=("tests/$part")
done
# First what runs on one core, on several at once; then, one by one, what takes all of them. Each
# part runs, whatever failed before. A process takes half a gigabyte: four are enough.
status=0
run -n auto --maxprocesses=4 --dist=worksteal -m "not alone" "${tests[@]}" || status=$?
# The system out of its images, which the first of these tests builds: where a Docker engine answers
# or is installed. Elsewhere they are skipped, and say why.
if try_engine; then
  export SIROCCO_IMAGES_TAG=test SIROCCO_IMAGES_BUILD="sirocco servers"
else
  export SIROCCO_IMAGES_MISSING=$engine_missing
fi
run tests/images || status=$?
stop_engine
begin_worlds
run -m alone "${tests[@]}" || status=$?
end_worlds || status=$?
exit "$status"
