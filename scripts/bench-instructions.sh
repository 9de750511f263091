#!/bin/bash
# Prints a Markdown table with the user-space instructions of each call with a fast path, through Debian's libdat2 +
# libdaplofa and through ours, on the same rxe device. Exits with 1 if ours misses a goal or is the larger in any row.
# See docs/performance.md.
#
# usage: bench-instructions.sh [--keep DIR]      --keep: callgrind's dumps go there, for callgrind_annotate
#
# Instructions, not times: they repeat exactly under emulation and on busy machines. A call's own instructions are
# those in the provider and in the libc functions that it calls (mutexes, copies). Both use rxe's verbs provider, and
# libdat2 has its own row.
#
# The doorbell of rxe is libc's write, a cancellation point, so a post of ours switches cancellation off and on. Devices that
# post without the kernel need no such thing. It has its own column, and no goal.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
dist=${DAT_DIST:-$target/dist}
bench=$target/bench
calls=512

# Goals (own instructions of each call), in the order of the table. "-": the only goal is not to be the larger. Of the 95, 70 are the
# post's and 25 the switch's, whose calls of libc are not counted.
goals() {
    cat <<'GOALS'
evd_dequeue, empty connection EVD;10
evd_dequeue, empty DTO EVD;40
evd_dequeue, request completion;80
evd_dequeue, receive completion;80
evd_wait, event ready;120
evd_wait, event ready after suppressed ones;120
ep_post_send, 64 B;95
ep_post_rdma_write, 64 B;95
ep_post_rdma_write, 2048 B;95
ep_post_recv, 64 B;60
ep_post_rdma_read, 64 B;-
ep_post_rdma_write, 2 segments;-
ep_post_rdma_write, 4 segments;-
ep_post_rdma_write, suppressed;-
GOALS
}

# ---- outside: build, run in one guest, print ----
if [ "${1:-}" != --inside ]; then
    keep=()
    if [ "${1:-}" = --keep ]; then
        mkdir -p "$2"
        keep=(--out "$2")
        shift 2
    fi
    [ $# = 0 ] || { echo "bench-instructions: unknown argument '$1'" >&2; exit 2; }
    [ -e "$dist/lib/libdat2.so.2" ] || { echo "bench-instructions: no $dist; run 'make dist' first" >&2; exit 1; }
    mkdir -p "$bench"
    # Debian's headers and libraries for both: our library is a drop-in replacement.
    cc -O2 -Wall -Werror -o "$bench/hotpath" "$top/tests/bench/hotpath.c" -ldat2
    # The same as a program of uDAPL 1.2, of which Debian has no library.
    cc -O2 -Wall -Werror -DDAT_1_2 -I"$top/capi/include" -L"$dist/lib" -o "$bench/hotpath-1.2" "$top/tests/bench/hotpath.c" -ldat
    "$top/tests/lab/run.sh" --timeout 600 "${keep[@]}" -- bash "$0" --inside >"$bench/counts"
    goals | awk -F ';' -v counts="$bench/counts" '
        BEGIN {
            while ((getline line < counts) > 0) {
                split(line, f, ";")
                own[f[1], f[2]] = f[3]; redirect[f[1], f[2]] = f[4]; below[f[1], f[2]] = f[5]
                cancel[f[1], f[2]] = f[6]
            }
            print "| call | DAPL | ours | goal | cancellation, ours | ratio with it | ours, 1.2 | below, DAPL | below, ours |"
            print "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
        }
        function row(name, theirs, mine, goal, cancelled, older, under_theirs, under_mine) {
            verdict = ""
            if (mine == "" || theirs == "") { verdict = " not counted"; bad = 1 }
            else if (goal != "-" && mine > goal + 0) { verdict = " missed"; bad = 1 }
            else if (mine > theirs) { verdict = " more than DAPL"; bad = 1 }
            printf "| %s | %.1f | %.1f | %s%s | %.0f | %.2f | %s | %s | %s |\n", name, theirs, mine, goal, verdict, cancelled, (theirs ? (mine + cancelled) / theirs : 0), older, under_theirs, under_mine
        }
        {
            row($1, own["dapl", $1], own["ours", $1], $2, cancel["ours", $1], sprintf("%.1f", own["older", $1]), sprintf("%.0f", below["dapl", $1]), sprintf("%.0f", below["ours", $1]))
            if (redirect["dapl", $1] > theirs) theirs = redirect["dapl", $1]
            if (redirect["ours", $1] > mine) mine = redirect["ours", $1]
        }
        END {
            row("libdat2 redirect (most of any call)", theirs, mine, 4, 0, "", "", "")
            exit bad
        }'
    exit
fi

# ---- inside the guest ----
out=$DAT_LAB_OUT

# Adds up self cost by object, and libc by the calling object: prints SIDE;CASE;OWN;REDIRECT;BELOW;CANCEL for each call.
summarise() {
    awk -v side="$1" -v calls=$calls '
        function kind(object) {
            if (object ~ /libdat2?\.so/) return "redirect"
            if (object ~ /libdaplofa|libdat-provider/) return "own"
            if (object ~ /librxe/) return "below"
            return object ~ /libc\.so|libc-/ ? "libc" : "other"
        }
        /^desc: Trigger: Client Request: / { name = substr($0, 32) }
        /^ob=/ { object = kind(substr($0, 4)); callee = object; next }
        /^fn=/ { callee = object; next }
        /^cob=/ { callee = kind(substr($0, 5)); next }
        /^cfn=/ { called = substr($0, 5); next }
        /^calls=/ { into = callee; callee = object; call = 1; next }
        /^[0-9+*-]/ {
            if (call) {
                call = 0
                # A call within libc counts for the object that entered libc.
                if (into == "libc" && object != "libc") sum[called ~ /pthread_setcancelstate/ ? "cancel" : object] += $NF
                next
            }
            if (object != "libc") sum[object] += $NF
        }
        END {
            printf "%s;%s;%.2f;%.2f;%.2f;%.2f\n", side, name, sum["own"] / calls, sum["redirect"] / calls, sum["below"] / calls, sum["cancel"] / calls
        }' "$2"
}

# count SIDE LIBRARY-PATH PROVIDER PARAMETERS [1.2]
count() {
    local dump said version=${5:-2.0}
    mkdir -p "$out/$1"
    echo "adapter u$version nonthreadsafe default $3 dapl.$version \"$4\" \"\"" >"$out/$1/dat.conf"
    # LD_BIND_NOW: no symbol is resolved inside a loop.
    said=$(LD_LIBRARY_PATH=$2 LD_BIND_NOW=1 DAT_OVERRIDE=$out/$1/dat.conf valgrind --tool=callgrind --quiet --collect-atstart=no \
        --compress-strings=no --compress-pos=no --callgrind-out-file="$out/$1/dump" "$bench/hotpath${5:+-$5}" adapter)
    [ "$said" = "hotpath: PASS" ] || { echo "bench-instructions: the program of $1 printed '$said', not 'hotpath: PASS'; its messages are above" >&2; return 1; }
    for dump in "$out/$1"/dump.*; do
        if grep -q '^desc: Trigger: Client Request: ' "$dump"; then summarise "$1" "$dump"; fi
    done
}

count dapl "" libdaplofa.so.2 "v0 0"
count ours "$dist/lib" libdat-provider-softrxe.so.2 "v0 0 engine=kernel"
count older "$dist/lib" libdat-provider-softrxe.so.2 "v0 0 engine=kernel" 1.2
