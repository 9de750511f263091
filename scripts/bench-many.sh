#!/bin/bash
# Prints memory, descriptors and time of many connections between processes of one host: all to all, and between two processes.
# See docs/performance.md.
#
# usage: bench-many.sh [PROCESSES [CONNECTIONS]]      needs make dist; 100 and 10000 by default; NEAR=off measures over UDP
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
dist=${DAT_DIST:-$target/dist}
[ -e "$dist/lib/libdat2.so.2" ] || { echo "bench-many: no $dist; run 'make dist' first" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -Wall -Werror -I"$top/capi/include" -L"$dist/lib" -o "$work/many" "$top/tests/bench/many.c" -ldat2 -lpthread
echo "many u2.0 threadsafe default $dist/lib/libdat-provider-softrxe.so.2 dapl.2.0 \"127.0.93.1 0 engine=user near=${NEAR:-auto}\" \"\"" >"$work/dat.conf"
export DAT_OVERRIDE=$work/dat.conf LD_LIBRARY_PATH=$dist/lib
echo "| processes | connections | seconds | connections/s | MiB of a process before | KiB of an end of a connection | MiB of rings, a process | descriptors more, a process |"
echo "|---:|---:|---:|---:|---:|---:|---:|---:|"
for ((processes = 2; processes < ${1:-100}; processes *= 4)); do
    timeout 300 "$work/many" all "$processes"
done
timeout 300 "$work/many" all "${1:-100}"
for connections in 100 1000 "${2:-10000}"; do
    timeout 300 "$work/many" pair "$connections"
done
