#!/bin/bash
# Counts the instructions of dat-abi's and dat-core's part of each call with a fast path, over the loopback transport,
# and fails if a call exceeds its ceiling below. Also counts what the low layer of the Rust API adds to the calls: the
# instructions of a Rust program outside the provider less those of the C program, which are the arguments, the loop and
# libdat2's redirect. It needs no device and no guest, and the numbers are the same on every machine with the same
# compiler. scripts/bench-instructions.sh shows what the verbs transport adds.
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

# Instructions that the low Rust layer adds to a call, without those in libc: function of the Rust program, row of the C
# program, ceiling (the count at the last change, and 3), goal.
rust_ceilings() {
    cat <<'CEILINGS'
count_post_send;ep_post_send, 64 B;5;5
count_post_recv;ep_post_recv, 64 B;5;5
count_post_rdma_write;ep_post_rdma_write, 64 B;8;5
count_empty_poll;evd_dequeue, empty DTO EVD;49;-
count_poll;evd_dequeue, request completion;76;-
count_poll_completion;evd_dequeue, receive completion;11;10
count_wait;evd_wait, event ready;50;-
CEILINGS
}

command -v valgrind >/dev/null || { echo "hotpath: no valgrind; scripts/bootstrap.sh installs it" >&2; exit 1; }
[ -e "$dist/lib/libdat2.so.2" ] || { echo "hotpath: no $dist; run scripts/dist.sh first" >&2; exit 1; }
rm -rf "$work"
mkdir -p "$work"
(
    cd "$top"
    . scripts/release-flags.sh
    cargo build --quiet --locked --release -p dat-loopback-provider
    cargo build --quiet --locked --release -p udapl --no-default-features --example hot_calls
)

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
    # The program's own part, and libdat2's.
    for dump in "$out"/dump.*; do
        awk -v calls=$calls '
            /^desc: Trigger: Client Request: / { name = substr($0, 32) }
            /^ob=/ { ours = /hotpath-|libdat2?\.so/ }
            /^calls=/ { skip = 1; next }
            /^[0-9+*-]/ { if (skip) skip = 0; else if (ours) sum += $NF }
            END { if (name != "") printf "%s;%.1f\n", name, sum / calls }' "$dump"
    done >"$work/program-$1"
}

# Writes the self cost of the Rust program's functions as NAME;INSTRUCTIONS for each call to $work/rust.
count_rust() {
    local said dump name out=$work/hot_calls options=()
    mkdir "$out"
    echo "loopback u2.0 threadsafe default $target/release/libdat_loopback_provider.so dapl.2.0 \"\" \"\"" >"$out/dat.conf"
    while IFS=';' read -r name _; do
        options+=("--dump-before=hot_calls::$name" "--dump-after=hot_calls::$name")
    done < <(rust_ceilings)
    said=$(LD_BIND_NOW=1 DAT_OVERRIDE=$out/dat.conf timeout -k 5 120 valgrind --tool=callgrind --quiet "${options[@]}" \
        --compress-strings=no --compress-pos=no --callgrind-out-file="$out/dump" "$target/release/examples/hot_calls" loopback)
    [ "$said" = "hot_calls: PASS" ] || { echo "hotpath: the Rust program printed '$said', not 'hot_calls: PASS'; its messages are above" >&2; return 1; }
    for dump in "$out"/dump.*; do
        awk -v calls=$calls '
            /^desc: Trigger: --dump-after=hot_calls::/ { name = substr($0, 40) }
            /^ob=/ { program = /hot_calls/ }
            /^fn=/ { ours = /hot_calls::count_|udapl::|dat_core::|Instant/ }
            /^calls=/ { skip = 1; next }
            /^[0-9+*-]/ { if (skip) skip = 0; else if (program && ours) sum += $NF }
            END { if (name != "") printf "%s;%.1f\n", name, sum / calls }' "$dump"
    done >"$work/rust"
}

cc -O2 -Wall -Werror -I"$top/capi/include" -L"$dist/lib" -o "$work/hotpath-2.0" "$top/tests/bench/hotpath.c" -ldat2
cc -O2 -Wall -Werror -DDAT_1_2 -I"$top/capi/include" -L"$dist/lib" -o "$work/hotpath-1.2" "$top/tests/bench/hotpath.c" -ldat
count 2.0 "$work/hotpath-2.0"
count 1.2 "$work/hotpath-1.2"
count_rust

[ "${1:-}" != --print ] || { tail -n +1 "$work"/counts-* "$work"/program-2.0 "$work"/rust; exit; }

# What the Rust layer adds; of two counts of a function, the larger one.
rust_ceilings | awk -F ';' -v c="$work/program-2.0" -v rust="$work/rust" '
    BEGIN {
        while ((getline line < c) > 0) { split(line, f, ";"); base[f[1]] = f[2] }
        while ((getline line < rust) > 0) { split(line, f, ";"); if (f[2] + 0 > most[f[1]]) most[f[1]] = f[2] }
    }
    {
        rows++
        if (base[$2] == "" || most[$1] == "") { printf "hotpath: Rust, %s: not counted\n", $2; bad++; next }
        n = most[$1] - base[$2]
        if (n > $3) { printf "hotpath: Rust, %s: %.1f instructions more than C, %.1f above the ceiling of %d\n", $2, n, n - $3, $3; bad++ }
        else if (n < $3 - 12) { printf "hotpath: Rust, %s: %.1f instructions more than C; lower its ceiling of %d\n", $2, n, $3; bad++ }
    }
    END {
        printf "hotpath: %d of %d calls of the Rust API are within their ceilings\n", rows - bad, rows
        exit bad || !rows
    }'
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
