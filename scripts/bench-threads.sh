#!/bin/bash
# Prints the rate of 64-byte RDMA writes of 1 to 8 threads in one process, each with an endpoint and EVDs of its own, on one pair
# of IAs, on one with 8 lanes and on a pair for each thread; and the rate of one thread beside another one that polls. See
# docs/performance.md.
#
# usage: bench-threads.sh [ROUNDS]      needs make dist; the best of ROUNDS (4) counts; NEAR=off measures over UDP
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
dist=${DAT_DIST:-$target/dist}
[ -e "$dist/lib/libdat2.so.2" ] || { echo "bench-threads: no $dist; run 'make dist' first" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -Wall -Werror -I"$top/capi/include" -L"$dist/lib" -o "$work/threads" "$top/tests/bench/threads.c" -ldat2 -lpthread
for n in 0 1 2 3 4 5 6 7; do
    for side in c:94 s:95; do
        echo "${side%%:*}$n u2.0 threadsafe default $dist/lib/libdat-provider-softrxe.so.2 dapl.2.0 \"127.0.${side#*:}.$((n + 1)) 0 engine=user near=${NEAR:-auto}\" \"\""
    done
done >"$work/dat.conf"
sed -n 's/^\([cs]\)0 \(.*\)\.1 0 engine=user/\1l \2.9 0 engine=user lanes=8/p' "$work/dat.conf" >"$work/lanes"
cat "$work/lanes" >>"$work/dat.conf"
export DAT_OVERRIDE=$work/dat.conf LD_LIBRARY_PATH=$dist/lib
for ((round = 0; round < ${1:-4}; round++)); do
    for threads in 1 2 4 8; do
        for ias in shared lanes own; do
            timeout 30 "$work/threads" $ias $threads
        done
    done
    for other in idle split; do
        for outstanding in 1 64; do
            timeout 30 "$work/threads" $other $outstanding
        done
    done
done | awk '{ k = $1 " " $2 } $4 > best[k] { best[k] = $4; line[k] = $0 } END { for (k in line) print line[k] }' | sort
