# Every target sets up what it needs (scripts/setup, scripts/packages.txt). `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help build demo test check bench budget fuzz docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the programs: target/release/ironswan, with ironswan-lab and ironswan-pki beside it; SYMBOLS=1: debug information, too
	@scripts/setup build
	@scripts/build

demo: ## two gateways, IKEv2 and TCP through ESP on this machine, under a minute once built (root)
	@scripts/setup demo
	@scripts/build
	@$${CARGO_TARGET_DIR:-target}/release/ironswan demo

test: ## everything that must hold: unit tests, stories, fuzz targets, real peers (root)
	@scripts/test

check: ## formatting, clippy, documentation links, licences
	@scripts/check

bench: ## figures on this machine, beside plain forwarding and wireguard-go (root, some minutes)
	@scripts/bench

budget: ## instructions that the packet path takes, against docs/performance/instructions.txt
	@scripts/budget

fuzz: ## every fuzz target for longer; TIME=seconds each
	@scripts/fuzz $${TIME:-300}

docs: ## the API documentation of all crates, in target/doc
	cargo doc --workspace --no-deps --locked

clean: ## what was built
	cargo clean
