# make run             builds the server and serves from ./data
# make build           builds target/release/kedge
# make test            everything that a change has to pass; `tests/run summary` shows the results again
# make test-build      compiles the tests and the binary of the end-to-end suites
# make test-cargo      unit, integration, property, crash and hostile tests of the workspace; simulated clusters; tidy
# make test-model      the threads of the executor under a model checker
# make test-scripts    the scripts of tests and benchmarks
# make test-python     one suite per client: -python -go -node -java -rust (SDKs), -memcached (clients, memcached's own tests), -users (OpenLDAP), -kms (moto, PyKMIP), -cluster
# make test-etcd       the coordination store in etcd: Debian's and a current one, members that fail, TLS, users, backups
# make test-deploy     the Helm chart, the unit of systemd, the recipe of the image: rendered, validated, against the server
# make test-search     the tests of the workspace with other random cases, ROUNDS (10) times
# make test-long       thousands of seeds of all seeded tests, 10,000 lives of vBuckets, 800 kills of servers: hours
# make test-mutants    breaks rules of sim/mutants.toml one at a time; simulated histories have to detect each
# make fuzz            every fuzz target for FUZZ_SECS (180); needs nightly and cargo-fuzz
# make prepare-python  installs what a suite needs, and no more; run-python runs it without building the server
# make bench-against   OLD=path: this tree's server against an older binary, interleaved
# make bench-instructions  the server's instructions per operation against the committed ones; UPDATE=1 writes them
# make bench           all benchmarks: bench-kv -memory -executor -couchstore -storage -cluster -documents; QUICK=1: under two minutes
# make lint            format, clippy, tidy; benchmarks and fuzz targets compile
# make tidy            the crate graph, links, documents and the text of the tree
# make fmt             formats all Rust code
# make docs            the site of docs/ in target/book/index.html
# make config-doc      docs/config.md from the table of settings
# make help            this list

CARGO ?= cargo
KEDGE := target/release/kedge
CHECKS := cargo model scripts
SUITES := python go node java rust memcached users kms cluster etcd deploy
LOGS := $(or $(KEDGE_TEST_LOGS),.cache/log)

# Suites have a server each, so they do not disturb each other; more at once only wait for the processor.
JOBS ?= 2

# The seed of property tests: the same in each run. test-search draws others.
export SEED ?= 1
ROUNDS ?= 10

# How much test-long does.
LONG_SEEDS ?= 5000
LONG_HISTORIES ?= 100000
LONG_CYCLES ?= 10000
LONG_KILLS ?= 200
LONG_ROUNDS ?= 20
LONG_FLOOD ?= 4000

# Crates that are no part of the workspace.
ALONE := tests/sdk/rust bench/common bench/couchstore bench/documents bench/executor bench/storage fuzz

# How long each fuzz target runs.
FUZZ_SECS ?= 180

# The generator of the site, pinned: the same pages from the same text. Without optimisation it is compiled in about a minute.
MDBOOK_VERSION := 0.5.4
MDBOOK := .cache/mdbook-$(MDBOOK_VERSION)/bin/mdbook

.PHONY: help run build docs test test-build $(CHECKS:%=test-%) test-search test-long test-mutants fuzz $(SUITES:%=prepare-%) $(SUITES:%=run-%) $(SUITES:%=test-%) tidy bench bench-kv bench-memory bench-instructions bench-against bench-executor bench-couchstore bench-storage bench-cluster bench-documents bench-tls lint fmt config-doc

help:
	@sed -n 's/^# make/make/p' Makefile

build:
	$(CARGO) build --release -p kedge

run: build
	$(KEDGE) serve --data-dir ./data

# Every part runs, whatever became of those before. The summary fails unless all have passed. All end-to-end suites are
# built before one runs: a compiler beside tests that watch a server takes the time from them.
#
# Tests that do not compile are a failure of the part `cargo`, and the other parts run as well. The binary is built without
# them, and one from before the change is removed.
test:
	@rm -f $(LOGS)/*.log $(LOGS)/*.exit
	@$(MAKE) --no-print-directory test-build || { rm -f target/debug/kedge; $(CARGO) build --profile test -p kedge --bins --examples || true; }
	@for part in $(CHECKS); do tests/run $$part || true; done
	@$(MAKE) --no-print-directory --keep-going --jobs=$(JOBS) --output-sync=target $(SUITES:%=prepare-%) || true
	@$(MAKE) --no-print-directory --keep-going --jobs=$(JOBS) --output-sync=target $(SUITES:%=run-%) || true
	@tests/run summary

# The tests of the workspace, and the binary that end-to-end suites run against: optimised, with assertions.
test-build:
	$(CARGO) test --workspace --no-run

$(CHECKS:%=test-%): test-%:
	@tests/run $*

# Property tests with other cases than those of make test, ROUNDS times. Stops at the first that fails.
test-search:
	for round in $$(seq $(ROUNDS)); do $(CARGO) test --workspace || exit 1; done

# What make test does a little of. Optimised less than a server, with assertions, but for simulated clusters. One part after
# the other; all are run.
test-long:
	@status=0; \
	KEDGE_SEEDS=$(LONG_SEEDS) KEDGE_CYCLES=$(LONG_CYCLES) \
		$(CARGO) test -p kedge-storage -p kedge-bucket --no-fail-fast || status=1; \
	KEDGE_SEEDS=$(LONG_HISTORIES) $(CARGO) test --release -p kedge-sim --no-fail-fast || status=1; \
	KEDGE_LONG_COMMANDS=full $(CARGO) test --release -p kedge-server --test it -- --nocapture every_opcode whole_node long_commands || status=1; \
	KEDGE_CRASH_ROUNDS=$(LONG_KILLS) KEDGE_STORAGE_CRASH_ROUNDS=$(LONG_KILLS) KEDGE_COLLECTIONS_CRASH_ROUNDS=$(LONG_KILLS) \
		KEDGE_USERS_CRASH_ROUNDS=$(LONG_KILLS) KEDGE_HOSTILE_ROUNDS=$(LONG_ROUNDS) \
		$(CARGO) test -p kedge --test it --no-fail-fast -- crash hostile || status=1; \
	KEDGE_SEEDS=$(LONG_KILLS) $(CARGO) test -p kedge-server --test it registry_crash || status=1; \
	KEDGE_CLUSTER_ROUNDS=$(LONG_ROUNDS) tests/run cluster || status=1; \
	KEDGE_FLOOD=$(LONG_FLOOD) $(CARGO) test -p kedge-server --test it floods || status=1; \
	KEDGE_FLOOD=$(LONG_FLOOD) $(CARGO) test -p kedge --test it floods || status=1; \
	exit $$status

# Rules of the code, broken one at a time: simulated histories have to find each. Takes some minutes.
test-mutants:
	$(CARGO) run -q -p xtask -- mutants

# One target after the other, with files that others wrote as seeds where there are any. Stops at the first that finds
# something.
fuzz:
	@for target in $$($(CARGO) +nightly fuzz list); do \
		seeds=; \
		case $$target in couchstore_file) seeds=crates/kedge-couchstore/tests/golden;; esac; \
		mkdir -p fuzz/corpus/$$target; \
		$(CARGO) +nightly fuzz run $$target fuzz/corpus/$$target $$seeds -- \
			-max_total_time=$(FUZZ_SECS) -max_len=65536 -rss_limit_mb=2048 || exit 1; \
	done

$(SUITES:%=prepare-%): prepare-%:
	@tests/run prepare $*

$(SUITES:%=run-%): run-%:
	@tests/run $*

$(SUITES:%=test-%): test-%: test-build run-%

tidy:
	$(CARGO) run -q -p xtask -- tidy

bench: bench-kv bench-memory bench-executor bench-couchstore bench-storage bench-cluster bench-documents bench-tls

bench-kv:
	python3 bench/kv.py

bench-memory:
	python3 bench/memory.py

# A count that is repeatable where clocks are not, so it is a part of CI and not of `make bench`.
bench-instructions:
	python3 bench/instructions.py

# A binary from before a change against the one of after it: make bench-against OLD=path
bench-against:
	OLD=$(OLD) python3 bench/against.py

bench-executor:
	python3 bench/executor.py

bench-couchstore:
	python3 bench/couchstore.py

bench-storage:
	python3 bench/storage.py

bench-cluster:
	python3 bench/cluster.py

bench-documents:
	python3 bench/documents.py

bench-tls:
	python3 bench/tls.py

# The site of docs/, with search, in target/book/index.html. The first run installs mdbook below .cache/; later ones need no
# network.
docs: $(MDBOOK)
	$(MDBOOK) build docs

$(MDBOOK):
	CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 $(CARGO) install mdbook --version $(MDBOOK_VERSION) --locked --debug \
		--no-default-features --features search --root .cache/mdbook-$(MDBOOK_VERSION) --target-dir .cache/target-mdbook
	rm -rf .cache/target-mdbook

# docs/config.md is printed by the table of settings.
config-doc:
	KEDGE_UPDATE_DOCS=1 $(CARGO) test -p kedge-sync --lib the_page_is_current
	KEDGE_UPDATE_DOCS=1 $(CARGO) test -p kedge-bucket-core --lib the_page_is_current
	KEDGE_UPDATE_DOCS=1 $(CARGO) test -p kedge --lib the_document_is_current

lint:
	$(CARGO) fmt --all -- --check
	for crate in $(ALONE); do $(CARGO) fmt --manifest-path $$crate/Cargo.toml -- --check || exit 1; done
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	for crate in $(filter-out tests/sdk/rust,$(ALONE)); do $(CARGO) check -q --manifest-path $$crate/Cargo.toml --target-dir target || exit 1; done
	$(CARGO) run -q -p xtask -- tidy

fmt:
	$(CARGO) fmt --all
	for crate in $(ALONE); do $(CARGO) fmt --manifest-path $$crate/Cargo.toml || exit 1; done
