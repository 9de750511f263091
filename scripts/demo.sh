#!/bin/bash
# Prints measured transfers between two processes through an IA chosen by name.
#
# usage: demo.sh [IA]       a name of dat.conf; default softrxe-lo: Soft-RoCE in user space, on any machine
#        demo.sh --lab      over the kernel's rdma_rxe, in the lab where this machine has none (DAT_LAB=native|qemu chooses)
set -euo pipefail
cd "$(dirname "$0")/.."
groups=build
[ "${1:-}" != --lab ] || groups='build lab'
# shellcheck disable=SC2086
scripts/bootstrap.sh $groups
scripts/dist.sh --profile "${DAT_PROFILE:-release}"
dist=$(realpath "${CARGO_TARGET_DIR:-target}")/dist
export LD_LIBRARY_PATH=$dist/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export DAT_OVERRIDE=${DAT_OVERRIDE:-$dist/etc/dat.conf}
[ "${1:-}" = --lab ] || exec "$dist/bin/dat" demo --ia "${1:-softrxe-lo}"
# v0 is the lab's interface. A machine with an adapter and no lab uses the first entry of dat.conf.
# shellcheck disable=SC2016
exec tests/lab/run.sh --sh '[ ! -e /sys/class/net/v0 ] || set -- --ia softrxe-v0; exec "$0" demo "$@"' "$dist/bin/dat"
