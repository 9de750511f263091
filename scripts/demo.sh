#!/bin/bash
# Data between two processes through an IA chosen by name, on what this machine has: RDMA of its own, else the lab.
# The guest is there for machines without RDMA; DAT_LAB=native|qemu chooses.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/bootstrap.sh build lab
scripts/dist.sh --profile "${DAT_PROFILE:-release}"
dist=$(realpath "${CARGO_TARGET_DIR:-target}")/dist
export LD_LIBRARY_PATH=$dist/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export DAT_OVERRIDE=$dist/etc/dat.conf
# v0 is the lab's interface. A machine with an adapter and no lab takes the first entry of dat.conf.
# shellcheck disable=SC2016
exec tests/lab/run.sh --sh '[ ! -e /sys/class/net/v0 ] || set -- --ia softrxe-v0; exec "$0" demo "$@"' "$dist/bin/dat"
