# `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: lab
lab: ## run CMD="..." where RDMA is (docs/lab.md); LAB_OPTS="--two --mtu 4200"
	@tests/lab/run.sh $(LAB_OPTS) --sh '$(subst ','\'',$(CMD))'

.PHONY: lab-shell
lab-shell: ## a shell in the lab
	@tests/lab/run.sh $(LAB_OPTS) --shell
