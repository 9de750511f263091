#!/bin/bash
# Debian's clients on our libdat2 and the user engine, on this host, under valgrind's memcheck: no wrong access and no definite leak whose
# stack leads through our libraries.
#
# usage: valgrind.sh [--all] [CASE]...      cases: dtest dtest-killed transaction killed; without any: dtest, and with --all every one
#
# The client's side runs under valgrind. Complaints without a frame of ours do not count (the clients leave memory behind), and neither do
# uninitialised bytes given to send: messages carry the consumer's bytes as they are, and dtest sends padding and buffers that it never filled.
set -uo pipefail
cd "$(dirname "$0")/.."
dist=${DAT_DIST:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/dist}
[ -e "$dist/lib/libdat2.so.2" ] || { echo "valgrind: no $dist; run make dist first" >&2; exit 1; }

cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(dtest)
[ "${cases[0]}" != --all ] || cases=(dtest dtest-killed transaction killed)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'adapter u2.0 nonthreadsafe default libdat-provider-softrxe.so.2 dapl.2.0 "127.0.7.1 0 engine=user" ""' >"$work/dat.conf"
export LD_LIBRARY_PATH=$dist/lib DAT_OVERRIDE=$work/dat.conf
at=127.0.7.1

# checked COMMAND...: under memcheck; its report is in $work/report.
checked() {
    timeout -k 5 "${limit:-240}" valgrind --log-file="$work/report" --leak-check=full --show-leak-kinds=definite --num-callers=40 \
        "$@"
}

# serve WORDS COMMAND...: starts a server and returns when it says the words.
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

# DAPL's fault 5: the server dies during a transaction, the client must not wait for ever.
case_killed() {
    serve 'Service Point Ready' dapltest -T S -D adapter || return
    checked dapltest -T T -s $at -D adapter -V -t 1 -w 1 -i 1000000 client SR 4096 2 server SR 4096 2 >"$work/client" 2>&1 &
    local client=$!
    kill_when 'eginning'
    wait $client
    [ $? -lt 124 ]
}

# kill_when WORDS: ends the server two seconds after it or the client said them.
kill_when() {
    for _ in $(seq 300); do
        grep -q "$1" "$work/client" "$work/server" 2>/dev/null && break
        sleep 0.1
    done
    sleep 2
    kill -9 "$(pgrep -P $server)"
    wait $server 2>/dev/null
}

# Of memcheck's report, the complaints with a frame in one of our libraries.
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
    rm -f "$work"/{client,server,report}
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
