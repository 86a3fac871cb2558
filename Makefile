# Two commands do everything on a fresh machine: `make up` and `make test`.
SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin
TARGET := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help up test test-full test-first check examples outage mutants torture two-phase bench fmt lint features package deny docs

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

up: ## Build, start a private Postgres, do a real job and keep an index true; ARGS=--once ends when it is done
	@scripts/setup.sh up
	cargo build --profile quick -p posthaste-cli --no-default-features
	@bin=$$(scripts/setup.sh pg-bin); [ -z "$$bin" ] || export POSTHASTE_PG_BIN="$$bin"; \
		exec "$(TARGET)/quick/posthaste" demo --packages $(ARGS)

test: ## Run the tests that every commit must pass, on PostgreSQL 18, and on 15 what depends on the version; ARGS go to cargo nextest run, such as a part of a name
	@scripts/setup.sh test receivers
	@scripts/test.sh $(ARGS)

test-full: ## Run every test, also those that take minutes
	@scripts/setup.sh test receivers
	@scripts/setup.sh container
	@scripts/setup.sh peers
	@scripts/test.sh --full $(ARGS)

test-first: ## Run what needs no server: unit tests, and the rules of the tree
	@scripts/setup.sh test
	@PATH="$$PWD/.tools/bin:$$PATH" cargo nextest run --workspace --all-features --cargo-quiet --ignore-default-filter -E 'kind(lib) or kind(bin) or test(=migrate::recorded::the_record_holds_the_statements_of_this_version) or (test(/^tidy::/) and not test(/^tidy::(every_store_statement|the_expanded|web::|documents::the_(examples|statements))/))'

check: lint test-first ## Format, lints, unit tests and the rules of the tree: for the edit loop

examples: ## Run the examples in other languages; ARGS name languages
	@scripts/examples.sh $(ARGS)

outage: ## Play the outage that started it all, the old way and posthaste side by side, and that of the search server; ARGS='broker 600' or 'search 600' plays one, for so many seconds
	@scripts/setup.sh test receivers
	cargo run --quiet --release -p posthaste-relay --features rabbitmq --example outage -- $(ARGS)

mutants: ## Show that the tests notice every broken variant of the store
	@scripts/setup.sh test
	@scripts/mutants.sh $(ARGS)

torture: ## Kill, cut, crash and promote under load for most of an hour, into docs/reports; ARGS=--bugs judges the judge. Without ARGS, a million schedules of the two-phase commit and its transfers before, and ten thousand of the sync
	@scripts/setup.sh torture
	@[ -n "$(ARGS)" ] || scripts/setup.sh test receivers
	@[ -n "$(ARGS)" ] || POSTHASTE_SCHEDULES=1000000 scripts/two-phase.sh schedules transfers
	@[ -n "$(ARGS)" ] || scripts/sync.sh
	cargo run --quiet -p posthaste-torture -- $(ARGS)

two-phase: ## Check the two-phase commit: the model in full, schedules, the real server, ten thousand transfers under fire; ARGS name parts
	@scripts/setup.sh test receivers
	@scripts/two-phase.sh $(ARGS)

bench: ## Measure against the rivals, into docs/benchmarks; ARGS go to the bench
	@scripts/setup.sh bench
	cargo build --quiet --release -p posthaste-cli
	cargo build --quiet --release -p posthaste-bench --bins --examples
	cargo run --release -p posthaste-bench -- $(ARGS)

fmt: ## Format
	cargo fmt --all

lint: ## Check the formatting and the lints
	cargo fmt --all --check
	cargo clippy --workspace --all-features --all-targets -- -D warnings

features: ## Compile each crate by itself, with none of its features, its default ones, and each alone; ARGS name features, none and default among them
	@scripts/features.sh $(ARGS)

package: ## Package each published crate, and build it from that; ARGS=--no-verify builds nothing
	cargo package --quiet --workspace --allow-dirty $(patsubst %,--exclude posthaste-%,bench testkit torture) $(ARGS)

# The advisories are left out: their database is fetched over a network that the build machine lacks.
deny: ## Check dependencies: bans, licences, sources
	@scripts/setup.sh ci
	PATH="$$PWD/.tools/bin:$$PATH" cargo deny --log-level error check bans licenses sources

# The command is left out: its pages would overwrite those of the library, which has the same name.
docs: ## Build the documentation, as a book (target/book) and as rustdoc; broken links fail, and pages that docs/SUMMARY.md does not name
	@scripts/setup.sh docs
	scripts/links.sh
	scripts/book.sh
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --exclude posthaste-cli --no-deps
	scripts/public-api.sh
