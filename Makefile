# Everything is done through here; `make help` lists it. CI calls the same targets.
.DEFAULT_GOAL := help
SHELL := bash
VENV := .venv
PYTHON := $(VENV)/bin/python
UV_VERSION := 0.13.8
GO := $(shell command -v go || echo $(CURDIR)/$(VENV)/bin/go)
PYTEST := $(PYTHON) -m pytest
# A lane of `make test`: what fails in it is run once more, and named.
LANE = $(PYTHON) -m tests.again $@
# Where it is set, as in many containers, each process compiles all 1,750 modules that it imports: 2 of its start's 4 seconds.
unexport PYTHONDONTWRITEBYTECODE
# Runs a command beside a PostgreSQL of its own, and ends it afterwards.
WITH_POSTGRES := $(PYTHON) -m tests.postgres
# Those of tests/security that ask a database: `make long` runs them on both.
SECURITY_OF_DATABASE := $(addprefix tests/security/,test_crawler.py test_database_role.py test_doors.py)
# What takes a minute and more runs on one of the two databases here, where a fault would show first: pages, doors, processes and
# replays ask both alike. A browser looks at pages on SQLite.
ON_SQLITE_ALONE := $(addprefix tests/component/policies/,test_change_doors.py test_change_machine.py)
ON_POSTGRES_ALONE := $(addprefix tests/component/,admin berth rest doctor notices webhooks test_background.py) \
	$(filter-out %/test_migrations.py,$(wildcard tests/component/controlplane/test_*.py)) \
	$(addprefix tests/component/,decisions/test_replay.py ledger/test_evidence.py ledger/test_evidence_changes.py ledger/test_evidence_files.py policies/test_desk.py policies/test_token_acts.py) \
	$(wildcard tests/component/*/test_*page*.py)
# Three run at a time, the longest first: two leave a third of two processors idle, waiting for servers.
LANES := test-clusters test-postgres test-unit test-sqlite test-browser test-differential test-go

.PHONY: help setup up test test-unit test-differential test-sqlite test-postgres test-go test-clusters test-e2e test-browser test-faults image-test long bench check site drawing figures editor audit format cluster clean

help: ## Say what there is
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

setup: ## Make the environment .venv, with everything that up and test need
	@deploy/setup $(UV_VERSION)

up: setup ## Run it all on this machine: admin on 127.0.0.1:8000, extender on 127.0.0.1:8010, a cluster. Ctrl-C ends it
	@$(PYTHON) -m controlplane.up $(if $(ADMIN_PORT),--admin-port $(ADMIN_PORT)) $(if $(EXTENDER_PORT),--extender-port $(EXTENDER_PORT))

test: setup ## Run all tests, on SQLite and PostgreSQL, with a real control plane and a real browser
	@$(MAKE) --no-print-directory cluster
	@$(MAKE) --no-print-directory --keep-going -j3 --output-sync=target $(LANES)
	@echo "all tests passed"

test-unit: ## Tests that need nothing; every branch of the engine has to be covered
	$(LANE) tests/unit tests/fuzz tests/security $(addprefix --ignore=,$(SECURITY_OF_DATABASE)) --cov=policies.engine --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100

test-differential: cluster ## The engine against kube-scheduler's own plugins; DIFFERENTIAL_CASES, DIFFERENTIAL_SEED
	$(LANE) tests/differential

test-sqlite: ## Tests of the database, on SQLite
	$(LANE) tests/component $(addprefix --ignore=,$(ON_POSTGRES_ALONE))

test-postgres: ## Tests of the database, on PostgreSQL
	$(WITH_POSTGRES) $(LANE) tests/component $(SECURITY_OF_DATABASE) $(addprefix --ignore=,$(ON_SQLITE_ALONE))

test-go: ## Tests of the local cluster
	cd deploy/localcluster && GOTOOLCHAIN=local LOCALCLUSTER_E2E=1 $(GO) test -count=1 ./internal/... ./cmd/localcluster/

test-e2e: ## Tests against the real kube-apiserver and kube-scheduler
	$(WITH_POSTGRES) $(LANE) tests/e2e

# Those that start whole clusters, not beside each other.
test-clusters:
	@$(MAKE) --no-print-directory --keep-going --jobs=1 test-e2e test-faults

test-browser: ## Tests of the admin in a real browser, on SQLite
	$(LANE) tests/browser

test-faults: ## Processes killed, disks full, watches cut, on a real control plane
	$(WITH_POSTGRES) $(LANE) tests/faults

long: setup cluster ## Checks that take long: searches for new cases, restarts again and again, benches
	HYPOTHESIS_PROFILE=search $(PYTEST) tests/unit/engine --timeout 3600
	DIFFERENTIAL_CASES=200000 DIFFERENTIAL_SEED=$$RANDOM $(PYTEST) tests/differential --timeout 3600
	HYPOTHESIS_PROFILE=search $(PYTEST) tests/fuzz tests/security --timeout 3600
	UV_PROJECT_ENVIRONMENT=$(VENV) $(VENV)/bin/uv sync --frozen --inexact --quiet --group fuzz
	$(PYTHON) -m tests.fuzz.coverage_guided 200000
	PREEMPTION_CASES=200 PREEMPTION_SEED=$$RANDOM $(WITH_POSTGRES) $(PYTEST) tests/e2e/test_preemption.py --timeout 3600
	ROLLING_ROUNDS=10 $(WITH_POSTGRES) $(PYTEST) tests/e2e/test_rolling_restart.py --timeout 3600
	FORMER=2768793 $(WITH_POSTGRES) $(PYTEST) tests/e2e/test_upgrade.py
	FAULT_RUNS=50 FAULT_SEED=$$RANDOM $(PYTEST) tests/faults/test_recording.py -s --timeout 14400
	FAULT_CLOCK=1 $(PYTEST) tests/faults/test_clock.py --timeout 1800
	FAULT_CLOCK=1 $(WITH_POSTGRES) $(PYTEST) tests/faults/test_clock.py --timeout 1800
	FAULT_RUNS=30 FAULT_SEED=$$RANDOM $(WITH_POSTGRES) $(PYTEST) tests/faults/test_binding.py tests/faults/test_leaders.py -s --timeout 7200
	FAULT_RUNS=30 FAULT_SEED=$$RANDOM $(PYTEST) tests/faults/test_scheduled_publish.py -s --timeout 7200
	PUBLISHING_DOORS=1 $(PYTEST) tests/faults/test_doors_at_once.py
	FAULT_RUNS=30 FAULT_SEED=$$RANDOM $(PYTEST) tests/faults/test_backtest.py -s --timeout 7200
	WEBHOOK_KILLS=10 $(PYTEST) tests/faults/test_webhooks.py --timeout 3600
	for run in 1 2 3 4 5; do PLACEMENTS_SEED=$$RANDOM $(WITH_POSTGRES) $(PYTEST) tests/faults/test_placements.py -s || exit 1; done
	HYPOTHESIS_PROFILE=search $(PYTEST) tests/unit/decisions/test_history_machine.py --timeout 7200
	MACHINE_EXAMPLES=1000 HYPOTHESIS_PROFILE=search $(PYTEST) tests/component/policies/test_change_machine.py --timeout 3600
	SECURITY=whole $(PYTEST) tests/security --timeout 7200
	SECURITY=whole $(WITH_POSTGRES) $(PYTEST) tests/security --timeout 7200
	REST_EXAMPLES=100 $(PYTEST) tests/component/rest/test_schema_answers.py --timeout 7200
	SECURITY=whole $(PYTEST) tests/component/controlplane/test_buttons.py --timeout 3600
	$(PYTEST) $(ON_POSTGRES_ALONE)
	$(WITH_POSTGRES) $(PYTEST) $(ON_SQLITE_ALONE)
	CHANGE_DOORS=whole $(WITH_POSTGRES) $(PYTEST) tests/component/policies/test_change_doors.py
	REPLAY_CASES=5000 REPLAY_SEED=$$RANDOM $(PYTEST) tests/component/decisions/test_replay.py --timeout 3600
	VERIFY_TRIALS=300 VERIFY_SEED=$$RANDOM $(PYTEST) tests/component/ledger --timeout 3600
	HOLD_TRIALS=100 HOLD_SEED=$$RANDOM $(PYTEST) tests/component/history/test_holds.py --timeout 3600
	HOLD_TRIALS=100 HOLD_SEED=$$RANDOM $(WITH_POSTGRES) $(PYTEST) tests/component/history/test_holds.py --timeout 3600
	SOAK_PUBLISHES=500 $(PYTEST) tests/faults/test_soak.py -s --timeout 3600
	COUNTING_RUNS=20 $(WITH_POSTGRES) $(PYTEST) tests/e2e/test_counting.py --timeout 7200
	ALERTS=whole $(PYTEST) tests/e2e/test_alerts_live.py --timeout 3600
	ACCESSIBILITY=whole $(PYTEST) tests/browser/test_accessibility.py --timeout 3600
	for run in 1 2 3 4 5; do $(WITH_POSTGRES) $(PYTEST) tests/e2e/test_restarts.py || exit 1; done
	$(PYTHON) -m tests.image --if-possible
	$(MAKE) --no-print-directory bench

bench: setup cluster ## Measure the engine, expressions' costs, the extender beside Go's, and Pods a second
	$(PYTHON) -m bench.starts
	$(PYTHON) -m bench.rule_sets
	$(PYTHON) -m bench.engine
	$(PYTHON) -m bench.cost
	$(PYTHON) -m bench.checking
	$(PYTHON) -m bench.live
	$(PYTHON) -m bench.memories
	$(PYTHON) -m bench.watched
	$(PYTHON) -m bench.ledger
	$(PYTHON) -m bench.origin
	$(PYTHON) -m bench.what_if
	$(PYTHON) -m bench.backtest
	$(PYTHON) -m bench.recording
	$(WITH_POSTGRES) $(PYTHON) -m bench.recording --sizes
	$(WITH_POSTGRES) $(PYTHON) -m bench.history
	$(WITH_POSTGRES) $(PYTHON) -m bench.stories
	$(WITH_POSTGRES) $(PYTHON) -m bench.pages
	$(PYTHON) -m bench.explorer
	$(WITH_POSTGRES) $(PYTHON) -m bench.rest
	$(PYTHON) -m bench.revisions
	$(PYTHON) -m bench.assignments
	$(PYTHON) -m bench.affinity
	$(WITH_POSTGRES) $(PYTHON) -m bench.extender
	$(PYTHON) -m bench.floods
	$(PYTHON) -m bench.floods --tls
	$(PYTHON) -m bench.accepting
	$(PYTHON) -m bench.fronts
	$(PYTHON) -m bench.fronts --plain
	$(PYTHON) -m bench.fronts --count
	$(WITH_POSTGRES) $(PYTHON) -m bench.end_to_end
	$(WITH_POSTGRES) $(PYTHON) -m bench.binding_loop
	$(WITH_POSTGRES) $(PYTHON) -m bench.shadow
	$(PYTHON) -m bench.hand_over
	$(PYTHON) -m bench.pauses

image-test: setup cluster ## Build the image and run docker-compose.yml without a daemon (root; buildah, podman, runc, mmdebstrap)
	$(PYTHON) -m tests.image

cluster: ## Build the local cluster's programs (minutes the first time)
	deploy/localcluster/localcluster build

check: setup ## Format, lint, types, layers, migrations, dead links, README's commands
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy controlplane policies scheduler berth/src bench
	$(VENV)/bin/lint-imports --config pyproject.toml
	$(PYTHON) manage.py makemigrations --check --dry-run
	$(PYTEST) -q tests/architecture
	@$(MAKE) --no-print-directory site

site: setup ## Build the documentation as a site into .berth/site; a link that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --quiet

drawing: ## Draw the house from its imports; FOLDERS, OF=another checkout, WRITE=yes into docs/architecture.md
	@$(PYTHON) -m tests.architecture.drawing $(if $(OF),--of $(OF)) $(if $(WRITE),--write) $(FOLDERS)

figures: ## Count the lines of product code and of tests; OF=another checkout
	@$(PYTHON) -m tests.architecture.drawing --figures $(if $(OF),--of $(OF))

editor: ## Make the bundle of the rule editor anew from deploy/editor and its lock (node, npm)
	cd deploy/editor && npm ci --ignore-scripts && node node_modules/esbuild/install.js && node build.js && rm -rf node_modules

# No part of CI: it asks a service, and its answer changes while the code doesn't.
audit: setup ## Ask for known faults of what Berth runs on (needs a way to PyPI's advisories)
	@mkdir -p .berth
	$(VENV)/bin/uv export --frozen --quiet --no-dev --no-emit-project --output-file .berth/requirements.txt
	$(VENV)/bin/uv tool run --from pip-audit==2.9.0 pip-audit --require-hashes --disable-pip --requirement .berth/requirements.txt

format: ## Put the code in its format
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

clean: ## Remove what up and test left here; the cluster's built programs stay in the cache
	rm -rf .berth .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis test-results
