#!/bin/bash
# Runs C programs on our libraries and the user engine, on this host, under valgrind's memcheck: no invalid access and
# no definite leak whose stack leads through our libraries. Debian's clients use libdat2; tests/c/mpi_like uses both
# libraries.
#
# usage: valgrind.sh [--all] [CASE]...
# cases: dtest dtestx dtestcm mpi-1.2 mpi-2.0 by default; and with --all also mpi-polling words dtest-killed
# transaction killed
#
# The client's side runs under valgrind, of mpi_like all ranks. Complaints without a frame of ours do not count (the
# clients leak memory), and neither do uninitialised bytes passed to send: messages carry the consumer's bytes
# unchanged, and dtest sends padding and buffers that it never filled.
set -uo pipefail
cd "$(dirname "$0")/.."
dist=${DAT_DIST:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/dist}
[ -e "$dist/lib/libdat2.so.2" ] || { echo "valgrind: no $dist; run make dist first" >&2; exit 1; }

cases=("$@")
default=(dtest dtestx dtestcm mpi-1.2 mpi-2.0)
[ ${#cases[@]} -gt 0 ] || cases=("${default[@]}")
[ "${cases[0]}" != --all ] || cases=("${default[@]}" mpi-polling words dtest-killed transaction killed)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for api in u2.0 u1.2; do
    echo "adapter $api nonthreadsafe default libdat-provider-softrxe.so.2 dapl.2.0 \"127.0.7.1 0 engine=user\" \"\""
done >"$work/dat.conf"
export LD_LIBRARY_PATH=$dist/lib DAT_OVERRIDE=$work/dat.conf
at=127.0.7.1

# checked COMMAND...: runs it under memcheck; its report, and those of its children, are in $work/report.
checked() {
    local status
    timeout -k 5 "${limit:-240}" valgrind --log-file="$work/report.%p" --leak-check=full --show-leak-kinds=definite --num-callers=40 \
        "$@"
    status=$?
    cat "$work"/report.* >"$work/report"
    rm -f "$work"/report.*
    return $status
}

# serve TEXT COMMAND...: starts a server and returns when it prints the text.
serve() {
    local words=$1
    shift
    timeout -k 2 200 stdbuf -oL "$@" >"$work/server" 2>&1 &
    server=$!
    for _ in $(seq 300); do
        grep -q "$words" "$work/server" && return
        kill -0 $server 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

case_dtest() {
    serve 'Server is waiting' dtest -P adapter -s -b 4096 -B 5 || return
    checked dtest -P adapter -h $at -b 4096 -B 5 >"$work/client" 2>&1
    wait $server
    grep -q 'DAPL Test Complete. PASSED' "$work/client"
}

case_dtestx() {
    serve 'waiting to snd addr' dtestx -P adapter -s || return
    checked dtestx -P adapter -h $at >"$work/client" 2>&1
    wait $server
    grep -q 'immed/atomic test PASSED' "$work/client"
}

case_dtestcm() {
    serve 'server waiting for client' dtestcm -P adapter -s -c 20 || return
    checked dtestcm -P adapter -h $at -c 20 >"$work/client" 2>&1
    wait $server
    grep -q 'ALL 20 CONNECTED on Client' "$work/client"
}

# mpi COMPILER-ARGUMENT... -- MODE...: runs a job of three ranks for each way to move small messages.
mpi() {
    local arguments=() mode
    while [ "$1" != -- ]; do
        arguments+=("$1")
        shift
    done
    shift
    gcc -g "${arguments[@]}" -I "$dist/include" -o "$work/mpi" tests/c/mpi_like/*.c -ldl || return
    for mode in "$@"; do
        checked "$work/mpi" "$mode" adapter >"$work/client" 2>&1
        cat "$work/report" >>"$work/all"
        grep -q 'mpi_like: PASS' "$work/client" || return
    done
    mv "$work/all" "$work/report"
}

case_mpi-1.2() { mpi -DUDAPL_1_2 -- cno; }

case_mpi-2.0() { mpi -- ud; }

# Slow, since the ranks spin.
case_mpi-polling() { mpi -- rdma evd; }

# Random calls with random words on the provider's tables, as in bad_input of the conformance tests.
case_words() {
    export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --log-file=$work/report --leak-check=full --show-leak-kinds=definite --num-callers=40"
    timeout -k 5 600 cargo test --quiet --locked -p dat-conformance --test bad_input -- random_words_do_the_user >"$work/client" 2>&1
    unset CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER
    grep -q 'test result: ok. 1 passed' "$work/client"
}

# DAPL's fault 1: the server dies, the client cleans up and dequeues after dat_ep_free.
case_dtest-killed() {
    serve 'Server is waiting' dtest -P adapter -s -b 4096 -B 100000 || return
    checked dtest -P adapter -h $at -b 4096 -B 100000 >"$work/client" 2>&1 &
    local client=$!
    kill_when 'PingPong\|CONNECTED\|onnected'
    wait $client
    [ $? -lt 124 ]
}

case_transaction() {
    serve 'Service Point Ready' dapltest -T S -D adapter || return
    checked dapltest -T T -s $at -D adapter -V -t 1 -w 1 -i 10 client SR 4096 2 server SR 4096 2 >"$work/client" 2>&1
    timeout 20 dapltest -T Q -s $at -D adapter >/dev/null 2>&1 || kill $server 2>/dev/null
    wait $server
    grep -q 'End of Work' "$work/client"
}

# DAPL's fault 5: the server dies during a transaction, the client must not wait forever.
case_killed() {
    serve 'Service Point Ready' dapltest -T S -D adapter || return
    checked dapltest -T T -s $at -D adapter -V -t 1 -w 1 -i 1000000 client SR 4096 2 server SR 4096 2 >"$work/client" 2>&1 &
    local client=$!
    kill_when 'eginning'
    wait $client
    [ $? -lt 124 ]
}

# kill_when TEXT: kills the server two seconds after it or the client printed the text.
kill_when() {
    for _ in $(seq 300); do
        grep -q "$1" "$work/client" "$work/server" 2>/dev/null && break
        sleep 0.1
    done
    sleep 2
    kill -9 "$(pgrep -P $server)"
    wait $server 2>/dev/null
}

# Prints the complaints of memcheck's report with a frame in one of our libraries.
ours() {
    sed -E 's/^==[0-9]+== ?//' "$work/report" | awk '
        /^$/ { if (mine) printf "%s\n", text; text = ""; mine = 0; sent = 0; next }
        /^Syscall param .*send.* uninitialised/ { sent = 1 }
        sent { next }
        { text = text $0 "\n" }
        /\/dist\/lib\/|libdat|dat_core|dat_abi|softrxe/ { if ($0 ~ /^   (at|by) /) mine = 1 }
    '
}

failed=0
for name in "${cases[@]}"; do
    begin=$SECONDS
    rm -f "$work"/{client,server,report,all}
    verdict=ok
    "case_$name" || verdict='FAILED: the client did not end well'
    if ! grep -q 'ERROR SUMMARY' "$work/report" 2>/dev/null; then
        verdict='FAILED: no report'
    elif [ -n "$(ours)" ]; then
        verdict="FAILED: $(ours | grep -c '^$') complaints with frames of ours"
        ours
    fi
    if [ "$verdict" != ok ]; then
        failed=$((failed + 1))
        tail -n 15 "$work/client" "$work/server" >&2
    fi
    echo "valgrind: $name $verdict ($((SECONDS - begin)) s)"
done
[ $failed = 0 ]
