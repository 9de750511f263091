#!/bin/bash
# Connection set-up: Debian's dtestcm over DAPL's two connection managers and over ours, interleaved in one guest boot. Prints the table of
# docs/performance.md: time a connection, and system calls a connection of client and server together.
#
# usage: bench-connections.sh [ROUNDS]      default 7
set -uo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
dist=${DAT_DIST:-$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")/dist}
sides="dapl-cma ours-rdmacm dapl-scm ours-socket"

if [ "${1:-}" != --inside ]; then
    exec "$top/tests/lab/run.sh" --timeout "${DAT_LAB_TIMEOUT:-900}" -- bash "$0" --inside "${1:-7}"
fi
rounds=$2
export DAPL_SCM_NETDEV=v0
work=$(mktemp -d)

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
    env ${library:+LD_LIBRARY_PATH=$library} DAT_OVERRIDE="$work/$side.conf" stdbuf -oL timeout 120 "$@"
}

# connect SIDE COUNT [strace]: dtestcm's microseconds a connection, or nothing if it failed; with strace the number of system calls.
connect() {
    local side=$1 count=$2 i server trace=("$work/server.calls" "$work/client.calls") with=() by=()
    if [ "${3:-}" = strace ]; then
        with=(strace -f -c -o "${trace[0]}") by=(strace -f -c -o "${trace[1]}")
    fi
    (on "$side" "${with[@]}" dtestcm -P adapter -s -w -c "$count") >"$work/server" 2>&1 &
    server=$!
    for i in $(seq 300); do
        grep -q 'server waiting for client' "$work/server" && break
        sleep 0.1
    done
    (on "$side" "${by[@]}" dtestcm -P adapter -h 10.9.0.1 -w -c "$count") >"$work/client" 2>&1
    wait $server
    grep -q "ALL $count CONNECTED" "$work/client" || return
    if [ "${3:-}" = strace ]; then
        awk '$NF == "total" { calls += $4 } END { print calls }' "${trace[@]}"
    else
        sed -n 's/.*Connections: *\([0-9.]*\) usec.*/\1/p' "$work/client"
    fi
}

for ((round = 0; round < rounds; round++)); do
    for side in $sides; do
        connect "$side" 60 >>"$work/$side.times"
    done
done
for side in $sides; do
    sort -n "$work/$side.times" | awk '{ t[NR] = $1 } END { printf "%d %d %d\n", t[int((NR + 1) / 2)], t[1], NR }' >"$work/$side.result"
    few=$(connect "$side" 10 strace) many=$(connect "$side" 40 strace)
    echo $(((${many:-0} - ${few:-0}) / 30)) >"$work/$side.system"
done
read -r base _ <"$work/dapl-cma.result"
echo '| connection manager | median, us | least, us | runs | rate by the median, DAPL cma = 1 | system calls |'
echo '|---|---:|---:|---:|---:|---:|'
for side in $sides; do
    read -r median least runs <"$work/$side.result"
    awk -v s="$side" -v m="$median" -v l="$least" -v n="$runs" -v b="$base" -v c="$(cat "$work/$side.system")" \
        'BEGIN { printf "| %s | %d | %d | %d | %.2f | %d |\n", s, m, l, n, m ? b / m : 0, c }'
done
