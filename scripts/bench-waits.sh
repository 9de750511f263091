#!/bin/bash
# Prints half the round trip of 64-byte messages between two processes that wait for each event in dat_evd_wait, in
# dat_cno_wait, or in poll(2) on a CNO's descriptor, with the processor time and the sleeps. See docs/performance.md.
#
# usage: bench-waits.sh [ROUNDS]      needs make dist; NEAR=off measures over UDP
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
dist=${DAT_DIST:-$target/dist}
[ -e "$dist/lib/libdat2.so.2" ] || { echo "bench-waits: no $dist; run 'make dist' first" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -Wall -Werror -I"$top/capi/include" -L"$dist/lib" -o "$work/descriptor" "$top/tests/bench/descriptor.c" -ldat2
for side in client:127.0.92.1 server:127.0.92.2; do
    echo "${side%%:*} u2.0 threadsafe default $dist/lib/libdat-provider-softrxe.so.2 dapl.2.0 \"${side#*:} 0 engine=user near=${NEAR:-auto}\" \"\""
done >"$work/dat.conf"
export DAT_OVERRIDE=$work/dat.conf LD_LIBRARY_PATH=$dist/lib
for ((round = 0; round < ${1:-3}; round++)); do
    for mode in wait cno poll spin-poll; do
        timeout 60 "$work/descriptor" client server $mode
    done
done
