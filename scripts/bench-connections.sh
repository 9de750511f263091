#!/bin/bash
# Prints a Markdown table for docs/performance.md: the time of a connection, waiting (dtestcm -w) and polling, and the
# system calls of a connection of client and server.
#
# Debian's dtestcm runs over DAPL's connection managers and over ours. The same exchange bare on librdmacm and
# libibverbs (tests/bench/connections.c) is the lower bound of all that use the kernel's connection manager. All run
# interleaved in one guest boot.
#
# usage: bench-connections.sh [ROUNDS]      default 5
#
# The guest has one processor, whose clock counts instructions (QEMU's -icount, 1 ns each): a microsecond is a thousand
# instructions of both programs, the kernel and the device together, independent of other load on the machine.
# BENCH_CLOCK=host takes two processors and real time.
set -uo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
dist=${DAT_DIST:-$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")/dist}
target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
floor=$target/bench/connections
# DAPL's scm provider sometimes hangs on one processor.
sides="dapl-cma ours-rdmacm ours-socket"
[ "${BENCH_CLOCK:-instructions}" = instructions ] || sides="$sides dapl-scm"

if [ "${1:-}" != --inside ]; then
    [ -e "$dist/lib/libdat2.so.2" ] || { echo "bench-connections: no $dist; run 'make dist' first" >&2; exit 1; }
    mkdir -p "$target/bench"
    # The headers of libibverbs and librdmacm.
    "$top/scripts/bootstrap.sh" build bench || exit 1
    cc -O2 -Wall -Werror -o "$floor" "$top/tests/bench/connections.c" -lrdmacm -libverbs || exit 1
    export DAT_LAB_CLOCK=${BENCH_CLOCK:-instructions}
    exec "$top/tests/lab/run.sh" --timeout "${DAT_LAB_TIMEOUT:-900}" -- bash "$0" --inside "${1:-5}"
fi
rounds=$2
export DAPL_SCM_NETDEV=v0
work=$(mktemp -d)
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null

conf() { echo "adapter u2.0 nonthreadsafe default $2 dapl.2.0 \"$3\" \"\"" >"$work/$1.conf"; }
conf dapl-cma libdaplofa.so.2 'v0 0'
conf dapl-scm libdaploscm.so.2 'rxe0 1'
conf ours-rdmacm libdat-provider-ibverbs.so.2 'v0 0'
conf ours-socket libdat-provider-ibverbs.so.2 'v0 0 cm=socket'

# on SIDE COMMAND...
on() {
    local side=$1 library=
    shift
    [[ $side == ours-* ]] && library=$dist/lib
    env ${library:+LD_LIBRARY_PATH=$library} DAT_OVERRIDE="$work/$side.conf" stdbuf -oL timeout -k 5 60 "$@"
}

# await FILE TEXT: waits until a server prints that it listens.
await() {
    local i
    for i in $(seq 300); do
        grep -q "$2" "$1" && return
        sleep 0.1
    done
}

# connect SIDE COUNT -w|-p [count]: prints the microseconds of a connection, or nothing on failure; with count the
# number of system calls.
connect() {
    local side=$1 count=$2 mode=() server trace=("$work/server.calls" "$work/client.calls") with=() by=()
    [ "$3" = -p ] || mode=("$3")
    if [ "${4:-}" = count ]; then
        with=(perf stat -x ';' -e raw_syscalls:sys_enter -o "${trace[0]}") by=(perf stat -x ';' -e raw_syscalls:sys_enter -o "${trace[1]}")
    fi
    if [ "$side" = floor ]; then
        "${with[@]}" "$floor" -s 10.9.0.1 "$count" >"$work/server" 2>&1 &
        server=$!
        await "$work/server" ready
        "${by[@]}" timeout 120 "$floor" -c 10.9.0.1 "$count" >"$work/client" 2>&1 || kill $server
    else
        (on "$side" "${with[@]}" dtestcm -P adapter -s "${mode[@]}" -c "$count") >"$work/server" 2>&1 &
        server=$!
        await "$work/server" 'server waiting for client'
        (on "$side" "${by[@]}" dtestcm -P adapter -h 10.9.0.1 "${mode[@]}" -c "$count") >"$work/client" 2>&1
    fi
    wait $server
    grep -qE "ALL $count CONNECTED|^connections:" "$work/client" || return
    if [ "${4:-}" = count ]; then
        awk -F ';' '/sys_enter/ { calls += $1 } END { print calls }' "${trace[@]}"
    else
        sed -n 's/.*onnections: *\([0-9.]*\) usec.*/\1/p' "$work/client"
    fi
}

for ((round = 0; round < rounds; round++)); do
    for side in $sides floor; do
        connect "$side" 100 -w >>"$work/$side-w.times"
        [ "$side" = floor ] || connect "$side" 100 -p >>"$work/$side-p.times"
        tail -qn 1 "$work/$side"-[wp].times | paste -sd ' ' | sed "s/^/round $round, $side: /" >&2
    done
done

# median FILE: prints the median and the least.
median() { sort -n "$1" 2>/dev/null | awk '{ t[NR] = $1 } END { printf "%.0f %.0f", t[int((NR + 1) / 2)], t[1] }'; }

read -r base_waiting _ < <(median "$work/dapl-cma-w.times"; echo)
read -r base_polling _ < <(median "$work/dapl-cma-p.times"; echo)
echo "| connection manager | waiting, us (least) | rate, DAPL cma = 1 | polling, us (least) | rate, DAPL cma = 1 |"
echo '|---|---:|---:|---:|---:|'
for side in $sides floor; do
    read -r waiting least < <(median "$work/$side-w.times"; echo)
    read -r polling quickest < <(median "$work/$side-p.times"; echo)
    awk -v s="$side" -v w="$waiting" -v l="$least" -v b="$base_waiting" -v p="${polling:-0}" -v q="${quickest:-0}" -v c="$base_polling" 'BEGIN {
            printf "| %s | %d (%d) | %.2f |", s, w, l, w ? b / w : 0
            if (p) printf " %d (%d) | %.2f |\n", p, q, c / p; else print " | |"
        }'
done
# Last, since the trace slows the client down.
for side in $sides floor; do
    few=$(connect "$side" 10 -w count) many=$(connect "$side" 40 -w count)
    [ -z "$few" ] || [ -z "$many" ] || echo "system calls, $side: $(((many - few) / 30))"
done
