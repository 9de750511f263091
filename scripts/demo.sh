#!/bin/bash
# Data between two processes through an IA chosen by name, on what this machine has: RDMA of its own, else the lab.
# The guest is there for machines without RDMA; DAT_LAB=native|qemu chooses.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/bootstrap.sh build lab
scripts/dist.sh --profile "${DAT_PROFILE:-release}"
dist=$(realpath "${CARGO_TARGET_DIR:-target}")/dist
export LD_LIBRARY_PATH=$dist/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec tests/lab/run.sh -- "$dist/bin/dat" demo "$@"
