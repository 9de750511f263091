#!/bin/bash
# Fails when a hot call has become longer: counts the instructions of dat-abi's and dat-core's part of each, over the loopback
# transport, and compares with the ceilings below. No device, no guest, and the same numbers on every machine with the same compiler.
# What the verbs transport adds is in the table of scripts/bench-instructions.sh.
#
# usage: hotpath-ceilings.sh          needs dist.sh's libdat2; --print writes the table without judging
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
dist=${DAT_DIST:-$target/dist}
work=$target/hotpath
calls=512

# Instructions for each call: what was counted when the line was last changed, and 3 for the compiler's moods.
ceilings() {
    cat <<'CEILINGS'
evd_dequeue, empty connection EVD;10
evd_dequeue, empty DTO EVD;61
evd_dequeue, request completion;74
evd_dequeue, receive completion;78
evd_wait, event ready;110
ep_post_send, 64 B;64
ep_post_rdma_write, 64 B;75
ep_post_rdma_write, 2048 B;75
ep_post_recv, 64 B;57
ep_post_rdma_read, 64 B;75
ep_post_rdma_write, 2 segments;165
ep_post_rdma_write, 4 segments;166
ep_post_rdma_write, suppressed;168
CEILINGS
}

command -v valgrind >/dev/null || { echo "hotpath: no valgrind; scripts/bootstrap.sh installs it" >&2; exit 1; }
[ -e "$dist/lib/libdat2.so.2" ] || { echo "hotpath: no $dist; run scripts/dist.sh first" >&2; exit 1; }
rm -rf "$work"
mkdir -p "$work"
(cd "$top" && cargo build --quiet --locked --release -p dat-loopback-provider)
cc -O2 -Wall -Werror -I"$top/capi/include" -L"$dist/lib" -o "$work/hotpath" "$top/tests/bench/hotpath.c" -ldat2

echo "loopback u2.0 nonthreadsafe default $target/release/libdat_loopback_provider.so dapl.2.0 \"\" \"\"" >"$work/dat.conf"
said=$(LD_LIBRARY_PATH=$dist/lib LD_BIND_NOW=1 DAT_OVERRIDE=$work/dat.conf timeout -k 5 120 valgrind --tool=callgrind --quiet \
    --collect-atstart=no --compress-strings=no --compress-pos=no --callgrind-out-file="$work/dump" "$work/hotpath" loopback)
[ "$said" = "hotpath: PASS" ] || { echo "hotpath: the program said '$said'" >&2; exit 1; }

# Self cost of the functions of our crates: NAME;INSTRUCTIONS for each call.
for dump in "$work"/dump.*; do
    awk -v calls=$calls '
        /^desc: Trigger: Client Request: / { name = substr($0, 32) }
        /^fn=/ { ours = /dat_(abi|core|arena)::/ && !/dat_loopback/; next }
        /^calls=/ { skip = 1; next }
        /^[0-9+*-]/ { if (skip) skip = 0; else if (ours) sum += $NF }
        END { if (name != "") printf "%s;%.1f\n", name, sum / calls }' "$dump"
done >"$work/counts"

[ "${1:-}" != --print ] || { cat "$work/counts"; exit; }
ceilings | awk -F ';' -v counts="$work/counts" '
    BEGIN { while ((getline line < counts) > 0) { split(line, f, ";"); counted[f[1]] = f[2] } }
    {
        rows++
        if (!($1 in counted)) { printf "hotpath: %s: not counted\n", $1; bad++ }
        else if (counted[$1] + 0 > $2) { printf "hotpath: %s: %.1f instructions, %.1f above the ceiling of %d\n", $1, counted[$1], counted[$1] - $2, $2; bad++ }
        else if (counted[$1] + 0 < $2 - 12) { printf "hotpath: %s: %.1f instructions; lower its ceiling of %d\n", $1, counted[$1], $2; bad++ }
    }
    END {
        printf "hotpath: %d of %d calls are within their ceilings\n", rows - bad, rows
        exit bad || !rows
    }'
