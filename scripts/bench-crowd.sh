#!/bin/bash
# Prints the time of a round of messages between more polling processes than processors, least and largest of some runs, and that of the
# same program over plain shared memory with sched_yield. See docs/performance.md.
#
# usage: bench-crowd.sh [RUNS [ROUNDS]]      needs make dist; 4 and 6000 by default; NEAR=off measures over UDP
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
dist=${DAT_DIST:-$target/dist}
[ -e "$dist/lib/libdat2.so.2" ] || { echo "bench-crowd: no $dist; run 'make dist' first" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -Wall -Werror -I"$top/capi/include" -L"$dist/lib" -o "$work/crowd" "$top/tests/bench/crowd.c" -ldat2
echo "crowd u2.0 threadsafe default $dist/lib/libdat-provider-softrxe.so.2 dapl.2.0 \"127.0.94.1 0 engine=user near=${NEAR:-auto}\" \"\"" >"$work/dat.conf"
export DAT_OVERRIDE=$work/dat.conf LD_LIBRARY_PATH=$dist/lib

# least_and_largest KIND PROCESSES: of all runs.
least_and_largest() {
    for ((run = 0; run < runs; run++)); do
        timeout 120 "$work/crowd" "$1" "$2" "$rounds"
    done | sort -n | sed -n '1p;$p' | paste -s -d ' ' | sed 's/ / to /'
}

runs=${1:-4} rounds=${2:-6000}
echo "$(nproc) processors: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1); Linux $(uname -r); load $(cut -d ' ' -f 1 /proc/loadavg)"
echo
echo "| us a round | DAT | shared memory |"
echo "|---|---:|---:|"
for kind in ring all flood; do
    for processes in "$(nproc)" $((2 * $(nproc))) $((3 * $(nproc))); do
        [ "$processes" -ge 2 ] || continue
        echo "| $kind, $processes processes | $(least_and_largest "$kind" "$processes") | $(least_and_largest "shm-$kind" "$processes") |"
    done
done
