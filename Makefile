# The commands of this project. `make demo` shows it, `make test` is every check there is, `make bench` measures it.

PYTHON ?= python3
# Build products lie in one place whatever the shell has set: scripts and tests look for them there.
export CARGO_TARGET_DIR := $(CURDIR)/target

VENV := target/venv
PY := $(VENV)/bin/python
# PyTorch and Transformers are gigabytes: their environment outlives changes of the package, which is tested from its sources.
TORCH := target/torch-venv
# antiphon refuses to run as root unless it is told that the machine is one's own, as a container's is.
ALLOW_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
NEXTEST := $(shell cargo nextest --version >/dev/null 2>&1 && echo yes)

.PHONY: demo test test-rust test-slurm storm test-python test-torch test-two-way test-metrics test-browser screenshots lint bench bench-full dashboard-times results proof gpu-check clean

## Builds, sets up, and runs the main job end to end.
demo: $(VENV)/quickstart
	cargo build --quiet -p antiphon
	$(PY) examples/quickstart/demo.py --binary target/debug/antiphon --directory target/demo $(ALLOW_ROOT)

## All checks and tests.
test: lint test-rust test-slurm storm test-python test-torch test-two-way test-metrics test-browser demo

lint: $(VENV)/quickstart $(VENV)/browser $(VENV)/checks
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
	$(VENV)/bin/ruff check python examples scripts
	$(VENV)/bin/ruff format --check python examples scripts
	cd python && ../$(VENV)/bin/mypy
	$(VENV)/bin/mypy --strict --python-version 3.12 scripts
	cd examples/quickstart && MYPYPATH=tests:.:../../python:../../python/tests \
		../../$(VENV)/bin/mypy --strict --python-version 3.12 train.py demo.py data.py model.py checkpoint.py tests/test_quickstart.py

# The end-to-end tests start the binary and trainers in the virtual environment.
test-rust: $(VENV)/quickstart
	cargo build --quiet --workspace --all-features
ifeq ($(NEXTEST),yes)
	ANTIPHON_TEST_PYTHON=$(abspath $(PY)) cargo nextest run --workspace --all-features --no-fail-fast
	cargo test --quiet --workspace --all-features --doc
else
	ANTIPHON_TEST_PYTHON=$(abspath $(PY)) cargo test --workspace --all-features --no-fail-fast
endif

# The backend over a real Slurm of its own, whose packages are installed where that may be done (root, Debian); says
# `skipped: ..` where not. One test after the other: each cluster is a dozen daemons.
test-slurm: $(VENV)/quickstart $(TORCH)/installed
	cargo build --quiet -p antiphon
ifeq ($(NEXTEST),yes)
	ANTIPHON_TEST_SLURM=1 ANTIPHON_TEST_PYTHON=$(abspath $(PY)) ANTIPHON_TEST_TORCH=$(abspath $(TORCH)/bin/python) \
		cargo nextest run -p antiphon-backends -p antiphon \
		--all-features --no-capture -E 'test(slurm) + binary(slurm)'
else
	ANTIPHON_TEST_SLURM=1 cargo test -p antiphon-backends --all-features --test contract slurm -- --nocapture
	ANTIPHON_TEST_SLURM=1 cargo test -p antiphon-backends --all-features --test slurm -- --nocapture --test-threads 1
	ANTIPHON_TEST_SLURM=1 ANTIPHON_TEST_PYTHON=$(abspath $(PY)) ANTIPHON_TEST_TORCH=$(abspath $(TORCH)/bin/python) \
		cargo test -p antiphon --test e2e slurm -- --nocapture --test-threads 1
endif

# Everything that may go wrong around the scheduler, at seeds that stay the same; one that is new is among the tests.
storm:
	cargo build --quiet -p antiphon
	target/debug/antiphon storm --seeds 200 --events 1000000

# A real Prometheus scrapes a real server; says skipped where there is none.
test-metrics:
	cargo build --quiet -p antiphon
	$(PYTHON) scripts/test_metrics.py --binary target/debug/antiphon $(ALLOW_ROOT)

test-python: $(VENV)/quickstart
	$(PY) -m unittest discover -s python/tests
	$(PY) -m unittest discover -s examples/quickstart/tests

# Real trainers, snapshots and gangs of processes. Everything runs on the CPU; a GPU that is there stays unused.
test-torch: $(TORCH)/installed
	cd python/tests_torch && CUDA_VISIBLE_DEVICES= HF_HUB_OFFLINE=1 timeout 600 ../../$(TORCH)/bin/python -m unittest discover

# The mix of data on a real trainer with a real server, in one scenario and at one seed; a server that is killed meanwhile,
# and a rollback.
test-two-way: $(TORCH)/installed
	cargo build --quiet -p antiphon
	PYTHONPATH=$(abspath python) $(TORCH)/bin/python scripts/two_way/measure.py --binary target/debug/antiphon --folder target/two-way/quick --quick
	PYTHONPATH=$(abspath python) $(TORCH)/bin/python scripts/two_way/restart.py --binary target/debug/antiphon --folder target/two-way/quick/restart

## The dashboard in a real browser on a real server; under three minutes. Says skipped where no browser can be had.
test-browser: $(VENV)/browser
	cargo build --quiet -p antiphon
	timeout 180 scripts/dashboard/with_browser.sh $(PY) scripts/dashboard/test_browser.py

## Pictures of every page of the dashboard, light and dark, large and small: writes docs/img/dashboard.
screenshots: $(VENV)/browser
	cargo build --quiet -p antiphon
	scripts/dashboard/with_browser.sh $(PY) scripts/dashboard/screenshots.py --binary target/debug/antiphon

## The two-way loop at full size: writes docs/reference/two-way.md. Takes hours, and picks up where it was stopped.
proof: $(TORCH)/installed
	cargo build --quiet --release -p antiphon
	PYTHONPATH=$(abspath python) $(TORCH)/bin/python scripts/two_way/starve.py --binary target/release/antiphon
	PYTHONPATH=$(abspath python) $(TORCH)/bin/python scripts/two_way/faults.py --binary target/release/antiphon
	PYTHONPATH=$(abspath python) $(TORCH)/bin/python scripts/two_way/restart.py --binary target/release/antiphon
	PYTHONPATH=$(abspath python) $(TORCH)/bin/python scripts/two_way/cost.py --binary target/release/antiphon
	PYTHONPATH=$(abspath python) $(TORCH)/bin/python scripts/two_way/straggler.py --binary target/release/antiphon
	PYTHONPATH=$(abspath python) $(TORCH)/bin/python scripts/two_way/resize.py
	PYTHONPATH=$(abspath python) $(TORCH)/bin/python scripts/two_way/measure.py --binary target/release/antiphon

## Measures what is promised, under 10 minutes; prints one JSON object a line. Leave the machine idle meanwhile.
bench:
	cargo bench --quiet -p antiphon-kernel --bench decisions
	cargo bench --quiet -p antiphon-planner --bench plan
	cargo bench --quiet -p antiphon-signals --bench in_process
	cargo bench --quiet -p antiphon-server --bench signals
	cargo bench --quiet -p antiphon-sim --bench million -- --jobs 50000
	cargo bench --quiet -p antiphon --bench local

## The same in the large size.
bench-full:
	cargo bench --quiet -p antiphon-kernel --bench decisions -- --runs 5 --starts 200000
	cargo bench --quiet -p antiphon-planner --bench plan -- --runs 9
	cargo bench --quiet -p antiphon-signals --bench in_process -- --runs 5 --signals 50000000
	cargo bench --quiet -p antiphon-server --bench signals -- --runs 5 --seconds 30
	cargo bench --quiet -p antiphon-sim --bench million
	cargo bench --quiet -p antiphon --bench local -- --runs 3 --slurm-runs 3 --seconds 100 --commands 50

## Times of the dashboard's pages on a large simulation, in Chromium: writes them into docs/reference/performance.md.
dashboard-times: $(VENV)/browser
	cargo build --quiet --release -p antiphon
	scripts/dashboard/with_browser.sh $(PY) scripts/dashboard/times.py --binary target/release/antiphon > target/dashboard-times.jsonl
	$(PYTHON) scripts/performance_page.py target/dashboard-times.jsonl --command "make dashboard-times"

## The published comparisons on public traces, and the practice scenario: `make results TRACES=DIR` writes
## docs/reference/results.md and docs/reference/practice.md.
results:
	cargo build --quiet --release -p antiphon
	$(PYTHON) scripts/results.py --binary target/release/antiphon --traces $(TRACES)
	$(PYTHON) scripts/practice.py --binary target/release/antiphon

## The planner against a real GPU: six small cases, under 6 minutes, offline. Says skipped where there is no GPU. The Python
## of a machine with one has PyTorch with CUDA, Transformers and PEFT: `make gpu-check PYTHON=..`.
gpu-check:
	cargo build --quiet --release -p antiphon
	$(PYTHON) scripts/gpu_check.py --binary target/release/antiphon

clean:
	cargo clean

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 9))' || \
		{ echo "error: $(PYTHON) is older than 3.9; set PYTHON=.. to a newer one" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The package is installed as users install it, not linked, so that what it ships is what is tested.
$(VENV)/quickstart: $(PY) examples/quickstart/requirements.txt python/pyproject.toml $(wildcard python/antiphon/*)
	$(PY) -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps ./python
	$(PY) -m pip install --quiet --disable-pip-version-check -r examples/quickstart/requirements.txt
	rm -rf python/build python/*.egg-info
	touch $@

$(VENV)/browser: $(VENV)/quickstart scripts/dashboard/requirements.txt
	$(PY) -m pip install --quiet --disable-pip-version-check -r scripts/dashboard/requirements.txt
	touch $@

$(TORCH)/installed: python/requirements-torch.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "error: $(PYTHON) is older than 3.10, which PyTorch needs; set PYTHON=.. to a newer one" >&2; exit 1; }
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(TORCH)/bin/uv pip install --quiet --python $(TORCH)/bin/python -r python/requirements-torch.txt
	touch $@

$(VENV)/checks: $(PY) python/requirements-dev.txt
	$(PY) -m pip install --quiet --disable-pip-version-check -r python/requirements-dev.txt
	touch $@
