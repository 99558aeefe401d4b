#!/usr/bin/env bash
# The whole suite. Arguments go to pytest; without any, all tests run, the quick ones first.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
source scripts/images/engine.sh
SIROCCO_TEST_STARTED=$(date +%s)
export SIROCCO_TEST_STARTED

# Kernels beforehand, so that no test pays for them and none times out on them.
scripts/setup.sh test oldest servers helm browser mqtt kernels
say "set-up took $(($(date +%s) - SIROCCO_TEST_STARTED)) s"

# env takes its place as a process, as nice does: $! below is the pytest in the background.
pytest=(env "PATH=$PWD/.cache/bin:$PATH" "PYTHONPATH=scripts${PYTHONPATH:+:$PYTHONPATH}"
  .venv/bin/python -m pytest -p pytest_stages -rfEs --durations=10)
run() { "${pytest[@]}" "$@"; }

# Tests in virtual time, and of state alone: no result depends on how long they take. So they use
# the moments in which all others wait for leases, brokers, processes and time limits: at the lowest
# priority they take next to nothing of the cores from those. While the others work they stand
# still, for minutes at times, which is no failure: the limit of a test is that of the whole stage.
# Not among them: tests with Hypothesis, which takes a slow example for a fault.
patient=(tests/simulation tests/unit/protocol tests/unit/index)
patient_pid=""
patient_log=$(mktemp)
begin_patient() {
  nice -n 19 "${pytest[@]}" -n auto --maxprocesses=4 --dist=worksteal --timeout=3600 \
    "${patient[@]}" >"$patient_log" 2>&1 &
  patient_pid=$!
}

# The type checker works on one core for most of its time: it runs beside the first tests.
lint_pid=""
lint_log=$(mktemp)
begin_lint() {
  scripts/lint.sh >"$lint_log" 2>&1 &
  lint_pid=$!
}

end_lint() {
  local failed=0
  wait "$lint_pid" || failed=$?
  lint_pid=""
  cat "$lint_log"
  return "$failed"
}

# An interrupted run leaves nothing running, not even an engine that was started here.
stop_all() {
  local pid
  for pid in $lint_pid $patient_pid; do kill "$pid" 2>/dev/null || true; done
  rm -f "$lint_log" "$patient_log"
  stop_engine
}
trap stop_all EXIT

end_patient() {
  local failed=0
  wait "$patient_pid" || failed=$?
  patient_pid=""
  say "beside the tests above, at the lowest priority: ${patient[*]}"
  cat "$patient_log"
  return "$failed"
}

if (($# > 0)); then
  scripts/lint.sh
  run "$@"
  exit
fi
# Where tests are that have processes of their own: tests/conftest.py refuses them elsewhere. Neither
# stage reads the files of the other. benchmarks is in none: `make bench` runs those.
alone=(tests/integration tests/end_to_end tests/charts/test_dashboards.py)
# First what runs on one core, on as many as there are; then, two at a time, what has processes of
# its own (SIROCCO_TESTS_AT_ONCE: more, where there are more cores). Each part runs, whatever failed
# before. A process takes half a gigabyte: four are enough.
status=0
begin_patient
begin_lint
run -n auto --maxprocesses=4 --dist=worksteal -m "not alone" "${patient[@]/#/--ignore=}" \
  tests/unit tests/paper tests/charts || status=$?
end_lint || status=$?
# The system out of its images, which the first of these tests builds: where a Docker engine answers
# or is installed. Elsewhere they are skipped, and say why.
if try_engine; then
  export SIROCCO_IMAGES_TAG=test SIROCCO_IMAGES_BUILD="sirocco servers"
else
  export SIROCCO_IMAGES_MISSING=$engine_missing
fi
trap stop_all EXIT # in place of that of the engine, which it stops as well
run tests/images || status=$?
stop_engine
# Their waits are against hanging only, and several follow each other in a test.
run -n "${SIROCCO_TESTS_AT_ONCE:-2}" -p pytest_pairs --timeout=3600 "${alone[@]}" || status=$?
end_patient || status=$?
exit "$status"
