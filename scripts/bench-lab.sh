#!/bin/bash
# Prints a Markdown table with the median and the best rate of each test of dapltest -T P, DAPL's and ours: on Debian's
# libdat2 + libdaplofa, and on our libraries, on the same rxe device, interleaved in one guest boot. See
# docs/performance.md.
#
# usage: bench-lab.sh [ROUNDS [PATTERN]]      default 5 rounds of every test; else of those whose name matches PATTERN
# (a regular expression)
#
# The guest has one processor, whose clock counts instructions (QEMU's -icount, 1 ns each), so that other load on the
# machine changes nothing. BENCH_CLOCK=host takes two processors and real time: there two runs of the same library
# differ by a factor of two.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
dist=${DAT_DIST:-$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")/dist}

if [ "${1:-}" != --inside ]; then
    [ -e "$dist/lib/libdat2.so.2" ] || { echo "bench-lab: no $dist; run 'make dist' first" >&2; exit 1; }
    export DAT_LAB_CLOCK=${BENCH_CLOCK:-instructions}
    exec "$top/tests/lab/run.sh" --timeout 1500 -- bash "$0" --inside "${1:-5}" "${2:-.}"
fi
rounds=$2 pattern=$3

work=$(mktemp -d)
line() { echo "adapter u2.0 nonthreadsafe default $1 dapl.2.0 \"$2\" \"\""; }
line libdaplofa.so.2 "v0 0" >"$work/dapl.conf"
line libdat-provider-softrxe.so.2 "v0 0 engine=kernel" >"$work/softrxe.conf"
line libdat-provider-ibverbs.so.2 "v0 0" >"$work/ibverbs.conf"

# on SIDE COMMAND...: executes the command with that side's libraries.
on() {
    local library=$dist/lib side=$1
    [ "$side" != dapl ] || library=
    shift
    exec env ${library:+LD_LIBRARY_PATH=$library} DAT_OVERRIDE="$work/$side.conf" stdbuf -oL timeout -k 2 90 "$@"
}

# pair SIDE READY SERVER -- CLIENT: runs both; the client's output goes to $work/client.
pair() {
    local side=$1 ready=$2 server=() pid i
    shift 2
    while [ "$1" != -- ]; do server+=("$1") && shift; done
    shift
    : >"$work/server"
    (on "$side" "${server[@]}") >"$work/server" 2>&1 &
    pid=$!
    for i in $(seq 200); do
        ! grep -q "$ready" "$work/server" || break
        sleep 0.1
    done
    (on "$side" "$@") >"$work/client" 2>&1 || true
    if [ "${server[0]}" = dapltest ]; then
        (on "$side" dapltest -T Q -s 10.9.0.1 -D adapter) >/dev/null 2>&1 || kill $pid 2>/dev/null || true
    fi
    wait $pid || true
}

dapltest() {
    local side=$1
    shift
    pair "$side" 'Service Point Ready' dapltest -T S -D adapter -- dapltest -T P -s 10.9.0.1 -D adapter "$@"
    # raw: OPERATION, iterations, size, segments, pipeline, CPU, operations/s, MB/s ...
    awk -F ', *' '/^raw:/ { rate = $7 } END { print rate + 0 }' "$work/client"
}

cases() {
    grep -E "^[^;]*($pattern)" <<'END'
RDMA Write 64 B, polling;-m p -i 8000 -p 16 RW 64 1
RDMA Write 4096 B, polling;-m p -i 4000 -p 16 RW 4096 1
RDMA Write 64 B, waiting;-m b -i 4000 -p 1 RW 64 1
RDMA Write 4096 B, waiting;-m b -i 4000 -p 1 RW 4096 1
RDMA Read 64 B, polling;-m p -i 4000 -p 4 RR 64 1
RDMA Read 4096 B, polling;-m p -i 3000 -p 4 RR 4096 1
RDMA Read 4096 B, waiting;-m b -i 3000 -p 1 RR 4096 1
END
}

values=$work/values
for round in $(seq "$rounds"); do
    while IFS=';' read -r name arguments; do
        for side in dapl softrxe ibverbs; do
            # shellcheck disable=SC2086
            value=$(dapltest "$side" $arguments </dev/null)
            echo "round $round, $side: $name: ${value:-nothing}" >&2
            echo "$name;$side;${value:-0}" >>"$values"
            [ "${value:-0}" != 0 ] || { grep -v '^ *$' "$work/client" | tail -5; } >&2
        done
    done < <(cases)
done

echo "| operations/s | | DAPL | softrxe | ratio | ibverbs | ratio |"
echo "|---|---|---:|---:|---:|---:|---:|"
cases | awk -F ';' -v values="$values" '
    # The values of each side in rising order.
    BEGIN {
        command = "sort -t \";\" -k 1,2 -k 3n " values
        while ((command | getline) > 0) { n[$1, $2]++; sorted[$1, $2, n[$1, $2]] = $3 }
    }
    function best(name, side) { return sorted[name, side, n[name, side]] }
    function median(name, side,    many) {
        many = n[name, side]
        return (sorted[name, side, int((many + 1) / 2)] + sorted[name, side, int((many + 2) / 2)]) / 2
    }
    function row(name, what, d, s, i) {
        printf "| %s | %s | %.0f | %.0f | %.2f | %.0f | %.2f |\n", name, what, d, s, d ? s / d : 0, i, d ? i / d : 0
    }
    {
        row($1, "best", best($1, "dapl"), best($1, "softrxe"), best($1, "ibverbs"))
        row("", "median", median($1, "dapl"), median($1, "softrxe"), median($1, "ibverbs"))
    }'
