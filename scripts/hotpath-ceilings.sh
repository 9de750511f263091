#!/bin/bash
# Counts the instructions of dat-abi's and dat-core's part of each call with a fast path, over the loopback transport,
# and fails if a call exceeds its ceiling below. It needs no device and no guest, and the numbers are the same on every
# machine with the same compiler. scripts/bench-instructions.sh shows what the verbs transport adds.
#
# usage: hotpath-ceilings.sh          needs dist.sh's libdat2; --print writes the table without judging
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
dist=${DAT_DIST:-$target/dist}
work=$target/hotpath
calls=512

# Instructions for each call in 2.0 and in 1.2: the count at the last change of the line, and 3 for variation of the
# compiler.
ceilings() {
    cat <<'CEILINGS'
evd_dequeue, empty connection EVD;10;10
evd_dequeue, empty DTO EVD;61;61
evd_dequeue, request completion;74;70
evd_dequeue, receive completion;78;75
evd_wait, event ready;102;98
evd_wait, event ready after suppressed ones;102;98
ep_post_send, 64 B;64;71
ep_post_rdma_write, 64 B;75;84
ep_post_rdma_write, 2048 B;75;84
ep_post_recv, 64 B;56;65
ep_post_rdma_read, 64 B;75;84
ep_post_rdma_write, 2 segments;128;137
ep_post_rdma_write, 4 segments;129;155
ep_post_rdma_write, suppressed;120;136
CEILINGS
}

command -v valgrind >/dev/null || { echo "hotpath: no valgrind; scripts/bootstrap.sh installs it" >&2; exit 1; }
[ -e "$dist/lib/libdat2.so.2" ] || { echo "hotpath: no $dist; run scripts/dist.sh first" >&2; exit 1; }
rm -rf "$work"
mkdir -p "$work"
(cd "$top" && . scripts/release-flags.sh && cargo build --quiet --locked --release -p dat-loopback-provider)

# count VERSION PROGRAM: writes the self cost of our crates' functions as NAME;INSTRUCTIONS for each call to
# $work/counts-VERSION.
count() {
    local said dump out=$work/$1
    mkdir "$out"
    echo "loopback u$1 nonthreadsafe default $target/release/libdat_loopback_provider.so dapl.$1 \"\" \"\"" >"$out/dat.conf"
    said=$(LD_LIBRARY_PATH=$dist/lib LD_BIND_NOW=1 DAT_OVERRIDE=$out/dat.conf timeout -k 5 120 valgrind --tool=callgrind --quiet \
        --collect-atstart=no --compress-strings=no --compress-pos=no --callgrind-out-file="$out/dump" "$2" loopback)
    [ "$said" = "hotpath: PASS" ] || { echo "hotpath: the program of $1 printed '$said', not 'hotpath: PASS'; its messages are above" >&2; return 1; }
    for dump in "$out"/dump.*; do
        awk -v calls=$calls '
            /^desc: Trigger: Client Request: / { name = substr($0, 32) }
            /^fn=/ { ours = /dat_(abi|core|arena)::/ && !/dat_loopback/; next }
            /^calls=/ { skip = 1; next }
            /^[0-9+*-]/ { if (skip) skip = 0; else if (ours) sum += $NF }
            END { if (name != "") printf "%s;%.1f\n", name, sum / calls }' "$dump"
    done >"$work/counts-$1"
}

cc -O2 -Wall -Werror -I"$top/capi/include" -L"$dist/lib" -o "$work/hotpath-2.0" "$top/tests/bench/hotpath.c" -ldat2
cc -O2 -Wall -Werror -DDAT_1_2 -I"$top/capi/include" -L"$dist/lib" -o "$work/hotpath-1.2" "$top/tests/bench/hotpath.c" -ldat
count 2.0 "$work/hotpath-2.0"
count 1.2 "$work/hotpath-1.2"

[ "${1:-}" != --print ] || { tail -n +1 "$work"/counts-*; exit; }
ceilings | awk -F ';' -v files="$work/counts-" '
    function read_counts(version,    line, f) {
        while ((getline line < (files version)) > 0) { split(line, f, ";"); counted[version, f[1]] = f[2] }
    }
    function judge(version, name, most,    n) {
        rows++
        n = counted[version, name]
        if (n == "") printf "hotpath: %s, %s: not counted\n", version, name
        else if (n + 0 > most) printf "hotpath: %s, %s: %.1f instructions, %.1f above the ceiling of %d\n", version, name, n, n - most, most
        else if (n + 0 < most - 12) printf "hotpath: %s, %s: %.1f instructions; lower its ceiling of %d\n", version, name, n, most
        else return
        bad++
    }
    BEGIN { read_counts("2.0"); read_counts("1.2") }
    { judge("2.0", $1, $2); judge("1.2", $1, $3) }
    END {
        printf "hotpath: %d of %d calls are within their ceilings\n", rows - bad, rows
        exit bad || !rows
    }'
