# `make help` lists the targets. The work is done in scripts/ and tests/lab/, which also run by hand.
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## install what is missing, build, move data between two processes through an IA chosen by name (IA=softrxe-lo)
	@scripts/demo.sh $(IA)

.PHONY: demo-lab
demo-lab: ## the same over the kernel's rdma_rxe, in the lab
	@scripts/demo.sh --lab

.PHONY: test
test: ## everything that CI runs
	@scripts/test.sh

.PHONY: dist
dist: ## target/dist: libraries, providers, headers, command; works in place
	@scripts/bootstrap.sh build
	@scripts/dist.sh

.PHONY: lab
lab: ## run CMD="..." where RDMA is (docs/lab.md); LAB_OPTS="--two --mtu 4200"
	@tests/lab/run.sh $(LAB_OPTS) --sh '$(subst ','\'',$(CMD))'

.PHONY: lab-shell
lab-shell: ## a shell there
	@tests/lab/run.sh $(LAB_OPTS) --shell

.PHONY: lab-test
lab-test: ## the Rust tests that need RDMA, there
	@scripts/lab-tests.sh

.PHONY: clients
clients: dist ## Debian's DAPL clients on every pairing of library and provider, there
	@tests/lab/clients.sh

.PHONY: bench
bench: ## the user engine beside raw UDP, UCX, libfabric and iperf3: one run, one table (docs/performance.md)
	@scripts/bench.sh

.PHONY: fuzz
fuzz: ## coverage-guided fuzzing of the user engine's protocol (HOURS=0.1, BODY="wire cm ...")
	@scripts/fuzz.sh $(or $(HOURS),0.1) $(BODY)

.PHONY: valgrind
valgrind: dist ## C programs on the user engine under memcheck, both libraries, with servers that die
	@scripts/valgrind.sh --all

.PHONY: sanitize
sanitize: ## loom, miri, ThreadSanitizer, AddressSanitizer: orders of threads, undefined behaviour, races, stray accesses (docs/sanitizers.md; PART="loom miri tsan asan")
	@scripts/sanitize.sh $(PART)

.PHONY: interop
interop: dist ## the user-space engine against the kernel's rdma_rxe, both ways round, there
	@tests/lab/interop.sh

.PHONY: bench-instructions
bench-instructions: dist ## instructions of the hot calls, DAPL's and ours (docs/performance.md)
	@scripts/bench-instructions.sh

.PHONY: matrix
matrix: ## write MATRIX.md, what works where
	@cargo run --quiet -p dat-conformance -- --matrix >MATRIX.md.new && mv MATRIX.md.new MATRIX.md

.PHONY: slots
slots: ## write what dat-abi/slots/slots.txt says of the API's functions into tables, exports and headers
	@cargo run --quiet -p dat-slots

.PHONY: bench-lab
bench-lab: dist ## rates of dapltest -T P there, DAPL's and ours, interleaved
	@scripts/bench-lab.sh

.PHONY: bench-connections
bench-connections: dist ## time to connect there: DAPL's, ours, and the floor under both
	@scripts/bench-connections.sh

.PHONY: fmt
fmt: ## format the code
	@cargo fmt --all

.PHONY: lint
lint: ## clippy, warnings are errors
	@cargo clippy --locked --workspace --all-targets -- -D warnings

.PHONY: doc
doc: ## build the documentation, warnings are errors
	@RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

.PHONY: deny
deny: ## licences, duplicates and sources of dependencies; builds cargo-deny once (minutes)
	@command -v cargo-deny >/dev/null || PATH="$(CURDIR)/.cache/tools/bin:$$PATH" command -v cargo-deny >/dev/null \
		|| cargo install --locked --root .cache/tools cargo-deny
	@PATH="$(CURDIR)/.cache/tools/bin:$$PATH" cargo deny check licenses bans sources
