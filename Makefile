# The commands of the project. Each sets up what it needs, once; scripts/setup.sh tells how.
SHELL := /bin/bash
# Bytecode is kept even where the caller's surroundings forbid it: packages are installed without,
# and each of the many processes of the suite would compile all its modules again, 2.5 s of CPU.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-bounds check docs reference fuzz sim mutants faults up down images test-images test-kubernetes test-kind bench bench-schemes bench-adaptivity bench-spark bench-against lint console proto proto-release

help: ## Lists the commands.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

setup: ## Virtual environment with the engine, the client and the demo's data; no root needed.
	@scripts/setup.sh run kernels

demo: ## All services on the embedded log with a stream of posts; three minutes the first time.
	@scripts/setup.sh run demo
	@.venv/bin/sirocco demo

test: ## Everything: set-up, linters, types, and the whole test suite on real parts.
	@scripts/test.sh $(ARGS)

check: ## Before a commit: linters, types, and the unit tests of what changed; about a minute. BASE=main.
	@scripts/setup.sh dev kernels
	@scripts/check.sh

docs: ## Builds the site of docs/, into .cache/docs-site; fails for a broken link. ARGS=serve shows it.
	@scripts/docs.sh $(ARGS)

reference: ## Writes the pages of docs/reference/ that follow from the code.
	@scripts/setup.sh dev kernels
	@PYTHONPATH=.:sdk .venv/bin/python scripts/reference.py

test-bounds: ## Unit tests of kernels, indexes and protocol with all indices of kernels checked; half an hour.
	@scripts/setup.sh dev kernels
	@SIROCCO_BOUNDS=1 .venv/bin/python -m sirocco.kernels.jit.precompile
	@SIROCCO_BOUNDS=1 .venv/bin/python -m pytest -q tests/unit/kernels tests/unit/index tests/unit/schemes tests/unit/protocol $(ARGS)

FUZZ_SEEDS ?= 0:1000
fuzz: ## Tables, lists, slices and texts under keys chosen for their hashes: make fuzz FUZZ_SEEDS=0:20000.
	@scripts/setup.sh dev kernels
	@.venv/bin/python -m tests.fuzz --seeds $(FUZZ_SEEDS) $(ARGS)

SEEDS ?= 0:1000
sim: ## The whole cluster under seeded faults, many seeds: each meets one profile: make sim SEEDS=0:20000.
	@scripts/setup.sh dev kernels
	@.venv/bin/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

mutants: ## Planted bugs, all of them, which the simulator has to find; some ten minutes.
	@scripts/setup.sh dev kernels
	@SIROCCO_MUTANTS=1 .venv/bin/python -m pytest -rf --durations=0 tests/simulation/test_planted_bugs.py $(ARGS)

faults: ## Faults on real processes under load, half an hour; ARGS="--only NAME", "--list", "--keep".
	@scripts/setup.sh test kernels
	@scripts/setup.sh servers network
	@.venv/bin/python -m tests.faults $(ARGS)

images: ## Images of the services and the Spark jobs: BASE_IMAGE=…, TAG=…; docs/contributing/images.md.
	@scripts/images.sh $(ARGS)

test-images: ## The whole system out of its images, in containers; against the oracle.
	@scripts/test_images.sh $(ARGS)

test-kubernetes: ## The chart on a real cluster: KUBECONFIG's, or one that is built and started here.
	@scripts/test_kubernetes.sh $(ARGS)

test-kind: ## The same on a cluster that kind makes, where its node image can be pulled.
	@scripts/kind.sh $(ARGS)

up: setup ## All services on this machine with a real Kafka and Redis.
	@scripts/setup.sh servers
	@.venv/bin/sirocco local up $(ARGS)

down: ## Stops what `make up` started.
	@if [ -x .venv/bin/sirocco ]; then .venv/bin/sirocco local down; else echo "nothing runs: no .venv"; fi

bench: ## The benchmarks: one JSON object a line; the report is docs/results/benchmarks.md. ARGS="NAME…" picks.
	@scripts/setup.sh bench kernels
	@.venv/bin/python benchmarks/report.py $(ARGS)

bench-schemes: ## Compares the schemes; the report is docs/results/schemes.md. ARGS=--quick for a rough one.
	@scripts/setup.sh dev kernels
	@.venv/bin/python -m benchmarks.schemes $(ARGS)

bench-adaptivity: ## What balancing brings, in virtual time: docs/results/adaptivity.md. ARGS="--only tornado" for one paper.
	@scripts/setup.sh dev kernels
	@.venv/bin/python -m benchmarks.adaptivity $(ARGS)

BEFORE ?= ../before
bench-against: ## CPU of matching, registration, publishing and searches against another checkout: BEFORE=path; ARGS="--rounds 30".
	@scripts/setup.sh bench kernels
	@.venv/bin/python -m benchmarks.against --before $(BEFORE) $(ARGS)

bench-spark: ## How the Spark jobs grow with the data: ARGS="--sizes 1000000 10000000"; docs/guides/spark.md.
	@scripts/setup.sh test kernels
	@.venv/bin/python scripts/bench_spark.py $(ARGS)

console: ## Builds the console of the gateway, which is committed; needs node. ARGS=--check only compares.
	@scripts/console.sh $(ARGS)

lint: ## Linter, formatter and type checker.
	@scripts/setup.sh dev
	@scripts/lint.sh

proto: ## Generates the Python code of proto/.
	@scripts/setup.sh dev
	@proto/generate.sh

proto-release: ## Declares the contracts as they are now to be the released ones.
	@scripts/setup.sh dev
	@proto/generate.sh
	@.venv/bin/buf build proto --exclude-source-info -o proto/released.binpb
