# `make help` lists the targets. The work is done in scripts/ and tests/lab/, which also run by hand.
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## install missing packages, build, and print measured transfers between two processes through an IA chosen by name (IA=softrxe-lo)
	@scripts/demo.sh $(IA)

.PHONY: demo-lab
demo-lab: ## run the demo over the kernel's rdma_rxe, in the lab
	@scripts/demo.sh --lab

.PHONY: check
check: ## format and unit tests, in two minutes, without root and without packages but gcc
	@scripts/check.sh

.PHONY: arm64
arm64: ## build for 64-bit ARM, and run unit tests and C programs under qemu-user
	@scripts/ports.sh arm64

.PHONY: ports
ports: ## the same for s390x, which is big endian, with a connection to this machine, and for 64-bit Power (rustup target add)
	@scripts/ports.sh s390x
	@scripts/ports.sh powerpc64le

.PHONY: test
test: ## run everything that CI runs
	@scripts/test.sh

.PHONY: dist
dist: ## build target/dist: libraries, providers, headers, command; works in place
	@scripts/bootstrap.sh build
	@scripts/dist.sh

.PHONY: install
install: ## copy target/dist to PREFIX=/usr/local (DESTDIR=, libdir=, ...: docs/installing.md); builds nothing
	@scripts/install.sh install

.PHONY: uninstall
uninstall: ## remove what make install copied, given the same variables
	@scripts/install.sh uninstall

.PHONY: deb
deb: dist ## build Debian packages in target/packages
	@scripts/packages.sh deb

.PHONY: rpm
rpm: dist ## build packages for Fedora and its kin in target/packages
	@scripts/packages.sh rpm

.PHONY: packages-test
packages-test: dist ## install, use, upgrade and remove in prefixes and, as packages, in a clean root
	@scripts/bootstrap.sh build test packages
	@tests/packages.sh prefix deb rpm

.PHONY: lab
lab: ## run CMD="..." in the lab, a machine or guest with RDMA (docs/lab.md); LAB_OPTS="--two --mtu 4200"
	@tests/lab/run.sh $(LAB_OPTS) --sh '$(subst ','\'',$(CMD))'

.PHONY: lab-shell
lab-shell: ## open a shell in the lab
	@tests/lab/run.sh $(LAB_OPTS) --shell

.PHONY: lab-test
lab-test: ## run the Rust tests that need RDMA, in the lab
	@scripts/lab-tests.sh

.PHONY: clients
clients: dist ## run Debian's DAPL clients on every pairing of library and provider, in the lab
	@tests/lab/clients.sh

.PHONY: clients-siw
clients-siw: dist ## run some of them on software iWARP in the lab, DAPL's provider beside ours
	@tests/lab/clients.sh --siw

.PHONY: bench
bench: ## print one table of the user engine beside raw UDP, UCX, libfabric and iperf3 (docs/performance.md)
	@scripts/bench.sh

.PHONY: fuzz
fuzz: ## fuzz the user engine's protocol, guided by coverage (HOURS=0.1, BODY="wire cm ...")
	@scripts/fuzz.sh $(or $(HOURS),0.1) $(BODY)

.PHONY: valgrind
valgrind: dist ## run C programs on the user engine under memcheck, both libraries, with servers that die
	@scripts/valgrind.sh --all

.PHONY: sanitize
sanitize: ## run loom, miri, ThreadSanitizer, AddressSanitizer: thread orders, undefined behaviour, races, invalid accesses (docs/sanitizers.md; PART="loom miri tsan asan")
	@scripts/sanitize.sh $(PART)

.PHONY: msrv
msrv: ## compile everything with the oldest Rust that Cargo.toml promises; rustup installs it
	@scripts/msrv.sh

.PHONY: interop
interop: dist ## run the user-space engine against the kernel's rdma_rxe in both roles, in the lab
	@tests/lab/interop.sh

.PHONY: bench-instructions
bench-instructions: dist ## print the instructions of the calls with a fast path, DAPL's and ours (docs/performance.md)
	@scripts/bench-instructions.sh

.PHONY: matrix
matrix: ## generate MATRIX.md: the state of each function on each provider
	@cargo run --quiet -p dat-conformance -- --matrix >MATRIX.md.new && mv MATRIX.md.new MATRIX.md

.PHONY: slots
slots: ## write what dat-abi/slots/slots.txt says of the API's functions into tables, exports and headers
	@cargo run --quiet -p dat-slots

.PHONY: bench-lab
bench-lab: dist ## print the rates of dapltest -T P in the lab, DAPL's and ours
	@scripts/bench-lab.sh

.PHONY: bench-waits
bench-waits: dist ## print half round trips with each way to wait for an event: dat_evd_wait, dat_cno_wait, poll(2)
	@scripts/bench-waits.sh

.PHONY: bench-many
bench-many: dist ## print memory, descriptors and time of 100 processes, all to all, and of 10,000 connections between two
	@scripts/bench-many.sh

.PHONY: bench-crowd
bench-crowd: dist ## print the time of a round of messages between more polling processes than processors
	@scripts/bench-crowd.sh

.PHONY: bench-threads
bench-threads: dist ## print the rate of several threads, on one IA and on one for each
	@scripts/bench-threads.sh

.PHONY: bench-connections
bench-connections: dist ## print the time to connect in the lab: DAPL's, ours, and their common lower bound
	@scripts/bench-connections.sh

.PHONY: package
package: ## rehearse the publication of udapl and dat-provider on crates.io, build the packages, and check names and metadata (minutes, network)
	@scripts/package.sh --build --names

.PHONY: fmt
fmt: ## format the code
	@cargo fmt --all

.PHONY: lint
lint: ## clippy, warnings are errors
	@cargo clippy --locked --workspace --all-targets -- -D warnings

.PHONY: doc
doc: ## build the documentation, warnings are errors
	@RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

.PHONY: site
site: ## build the documentation site, target/site/book; builds mdBook once (minutes)
	@scripts/site.sh

.PHONY: deny
deny: ## check licences, duplicates and sources of dependencies; builds cargo-deny once (minutes)
	@command -v cargo-deny >/dev/null || PATH="$(CURDIR)/.cache/tools/bin:$$PATH" command -v cargo-deny >/dev/null \
		|| cargo install --locked --root .cache/tools cargo-deny
	@PATH="$(CURDIR)/.cache/tools/bin:$$PATH" cargo deny check licenses bans sources
