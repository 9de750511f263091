#!/bin/bash
# Debian's DAPL clients, unmodified, on every pairing of library and provider; prints a table of cases.
#
# usage: clients.sh [--host] [--cases 'NAME...'] [PAIRING]...      PAIRING: CLIENT or CLIENT>SERVER, of the sides below
#
# All in one guest with real rdma_rxe; with --host on this machine as it is, over the user-space engine.
#
# A case passes when both processes say so in words and the data counters of the case are not zero: the clients' exit status is 0 even when
# they fail. What fails without one line of ours involved is shown and does not count.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
dist=${DAT_DIST:-$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")/dist}

# side NAME: where one process runs and on what. Sets $library (LD_LIBRARY_PATH), $entry (dat.conf), $address, $within.
sides="debian ibverbs softrxe debian+ibverbs debian+softrxe dat+daplofa user debian+user debian-scm softrxe-scm dat+daploscm"
side() {
    library=$dist/lib address=10.9.0.1 within=
    local object=libdat-provider-softrxe.so.2 params="v0 0"
    case $1 in
        debian) library= object=libdaplofa.so.2 ;;
        ibverbs) object=libdat-provider-ibverbs.so.2 ;;
        softrxe) params="v0 0 engine=kernel" ;;
        debian+ibverbs) library= object=$dist/lib/libdat-provider-ibverbs.so.2 ;;
        debian+softrxe) library= object=$dist/lib/$object params="v0 0 engine=kernel" ;;
        dat+daplofa) object=libdaplofa.so.2 ;;
        # Connections over TCP sockets.
        debian-scm) library= object=libdaploscm.so.2 params="rxe0 1" ;;
        dat+daploscm) object=libdaploscm.so.2 params="rxe0 1" ;;
        softrxe-scm) params="v0 0 engine=kernel cm=socket" ;;
        user | debian+user)
            [ "$1" = user ] || library= object=$dist/lib/$object
            if [ "$where" = host ]; then
                params="lo 0 engine=user" address=127.0.0.1
            else
                # UDP port 4791 of the initial namespace belongs to rdma_rxe.
                params="10.9.0.2 0 engine=user" address=10.9.0.2 within='ip netns exec peer'
            fi ;;
        *) echo "clients: no side '$1'; there are: $sides" >&2; exit 2 ;;
    esac
    # One name on all sides: dtest's client opens the name that its server tells it.
    entry="adapter u2.0 nonthreadsafe default $object dapl.2.0 \"$params\" \"\""
}

# The cases: NAME KIND ARGUMENTS. `transfer` wants these words of the report above zero.
cases() {
    cat <<'END'
dtest           dtest       -b 16384
dtest-cno       dtest       -b 16384 -c
dtest-poll      dtest       -b 16384 -p
dtest-check     dtest       -b 16384 -D
dtest-write     dtest       -b 16384 -W -D
dtestcm         dtestcm     -c 100
dtestcm-wait    dtestcm     -c 100 -w
dtestx          dtestx
dtestx-ud       datagrams   -u
dtestx-udm      datagrams   -u -m
dtestsrq        dtestsrq    -c 4 -B 8 -t 4
dtestsrq-ud     dtestsrq    -c 4 -B 8 -t 4 -u
dtestsrq-plain  dtestsrq    -c 4 -B 8 -t 4 -S 0
SR-1x1          transfer    Send,Recv       -t 1 -w 1 -i 50 client SR 4096 2 server SR 4096 2
SR-1x8          transfer    Send,Recv       -t 1 -w 8 -i 10 client SR 1024 4 server SR 4096 2
SR-4x1          transfer    Send,Recv       -t 4 -w 1 -i 10 client SR 1024 4 server SR 4096 2
SR-4x8          transfer    Send,Recv       -t 4 -w 8 -i 5 client SR 1024 3 server SR 2048 1
RW-1x1          transfer    RDMA-Write      -t 1 -w 1 -i 50 client RW 4096 1 server RW 2048 4 client SR server SR
RW-1x8          transfer    RDMA-Write      -t 1 -w 8 -i 10 client RW 4096 1 server RW 2048 4 client SR server SR
RW-4x1          transfer    RDMA-Write      -t 4 -w 1 -i 10 client RW 65536 1 server RW 2048 4 client SR server SR
RW-4x8          transfer    RDMA-Write      -t 4 -w 8 -i 5 client RW 4096 1 server RW 2048 4 client SR server SR
RR-1x1          transfer    RDMA-Read       -t 1 -w 1 -i 50 client RR 4096 1 server RR 2048 2 client SR server SR
RR-1x8          transfer    RDMA-Read       -t 1 -w 8 -i 10 client RR 4096 1 server RR 2048 2 client SR server SR
RR-4x1          transfer    RDMA-Read       -t 4 -w 1 -i 10 client RR 65536 1 server RR 2048 2 client SR server SR
RR-4x8          transfer    RDMA-Read       -t 4 -w 8 -i 5 client RR 4096 1 server RR 2048 2 client SR server SR
perf-write      perf        -i 300 RW 4096 2
perf-read-poll  perf        -m p -i 300 RR 4096 2
limits          limits      -w 4 -m 30
END
}

# belongs PAIRING NAME: whether a pairing has the case without being asked. Every case is in the columns of one library and one provider;
# where only the library is another, or only the wire is shared, what differs there is enough.
belongs() {
    case $2 in
        # No server in it: nothing new beside the client's own column.
        limits) [[ $1 != *'>'* ]] || return ;;
        # DAPL's side waits for ever for an event that rdma_rxe does not raise; once, alone, is enough to show it.
        dtestsrq) case ">$1>" in '>debian>') ;; *'>debian>'* | *'>debian-'* | *daplo*) return 1 ;; esac ;;
    esac
    case $1 in
        *scm*) over_sockets "$1" "$2" ;;
        *user*) ;;
        *+* | *'>'*) [[ ' dtest dtest-cno dtest-poll dtestcm dtestx dtestx-ud dtestsrq dtestsrq-plain SR-4x8 RW-4x1 RR-1x8 perf-write ' == *" $2 "* ]] ;;
    esac
}

# The connection manager over sockets makes the connection; what runs over it is the same as elsewhere, so a few of each are enough.
over_sockets() {
    local some
    case $1 in
        softrxe-scm) some=' dtest dtestcm ' ;;
        *'>debian-scm') some=' dtest SR-4x8 RR-1x1 ' ;;
        debian-scm\>*) some=' dtest-check SR-4x8 RW-1x1 ' ;;
        *) some=' dtest ' ;;
    esac
    [[ $some == *" $2 "* ]]
}

# without_datagrams PAIRING NAME: a case of datagrams, and a side that cannot. DAPL's own provider alone is shown all the same.
without_datagrams() {
    [[ $2 == *-ud* ]] || return
    case $1 in
        *debian\>* | *\>debian | dat+daplo* | *scm*) return 0 ;;
        # 32 datagrams in one burst are more than the kernel queues between two processes of one address, and nobody repeats them.
        *user*) [ "$2" = dtestsrq-ud ] ;;
        *) return 1 ;;
    esac
}

where=host
case ${1:-} in
    --host) shift ;;
    --inside) where=guest && shift ;;
    # One guest for everything.
    *) exec "$here/run.sh" --netns --timeout "${DAT_LAB_TIMEOUT:-1800}" -- bash "$0" --inside "$@" ;;
esac

only=''
if [ "${1:-}" = --cases ]; then
    only=$2
    shift 2
fi
pairings=("$@")
if [ ${#pairings[@]} = 0 ] && [ $where = host ]; then
    pairings=(user debian+user)
elif [ ${#pairings[@]} = 0 ]; then
    pairings=(debian ibverbs softrxe debian+ibverbs debian+softrxe dat+daplofa 'softrxe>debian' 'debian>softrxe'
        softrxe-scm 'softrxe-scm>debian-scm' 'debian-scm>softrxe-scm' 'dat+daploscm>softrxe-scm')
fi

work=$(mktemp -d)
for name in $sides; do
    side "$name"
    echo "$entry" >"$work/dat.conf.$name"
done

# on SIDE COMMAND...: becomes the command as that side, so call it in a subshell: in the background that one's number is the command's.
on() {
    local conf=$work/dat.conf.$1
    side "$1"
    shift
    # libdaploscm takes the address from this netdev.
    local netdev=
    case $entry in *daploscm*) netdev=DAPL_SCM_NETDEV=v0 ;; esac
    # stdbuf: a server's "ready" must be seen when it is said, though its stdout is a file. env, so that nothing of ours preloads into ip.
    exec $within env ${library:+LD_LIBRARY_PATH=$library} DAT_OVERRIDE="$conf" DAT_LOG=warn $netdev stdbuf -oL timeout -k 2 "${limit:-60}" "$@"
}

# serve WORDS COMMAND...: starts the server and returns when it says the words; it has 20 s.
serve() {
    local words=$1 i
    shift
    (on "$server" "$@") >"$log.server" 2>&1 &
    server_pid=$!
    for i in $(seq 200); do
        grep -q "$words" "$log.server" 2>/dev/null && return
        kill -0 $server_pid 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# Messages of the clients, the library or the provider that a run without fault never prints.
complaints='fail|error[^s]|ERROR|Error|mismatch|swallow|timed out|[Aa]ssert|panick|Invalid_DAT|symbol lookup'
no_complaints() { ! grep -qE "$complaints" "$@"; }

case_dtest() {
    # -W polls memory without a call into the library: two busy threads beside those that work, on two cores.
    local limit=120
    serve 'Server is waiting' dtest -P adapter -s "$@" || return 1
    (on "$client" dtest -P adapter -h "$at" "$@") >"$log.client" 2>&1
    # A server whose client gave up waits to the end of its time.
    grep -q 'DAPL Test Complete. PASSED' "$log.client" || kill $server_pid 2>/dev/null
    wait $server_pid
    grep -q 'DAPL Test Complete. PASSED' "$log.server" && grep -q 'DAPL Test Complete. PASSED' "$log.client" || return 1
    # PASSED alone also follows a run that moved nothing.
    case " $* " in
        *' -D '*) grep -q 'DATA CHECK' "$log.client" && grep -q 'RDMA write PingPong' "$log.client" ;;
        *)
            grep -q 'CLIENT: RDMA write buffer contains: server RDMA write data' "$log.client" &&
            # What the peer's buffer holds when it is read depends on how far the peer is: its own text, or what was written to it.
            grep -qE 'CLIENT: RCV RDMA read buffer contains: (server RDMA read|client RDMA write) data' "$log.client" &&
            grep -qE 'SERVER: RCV RDMA read buffer contains: (client RDMA read|server RDMA write) data' "$log.server" &&
            grep -q 'Message PingPong' "$log.client" && grep -q 'RDMA write (bi-direction)' "$log.client" ;;
    esac && no_complaints "$log.server" "$log.client"
}

# simple COMMAND READY DONE: a client and a server that both say DONE.
simple() {
    local command=$1 ready=$2 words=$3 limit=20
    shift 3
    serve "$ready" "$command" -P adapter -s "$@" || return 1
    (on "$client" "$command" -P adapter -h "$at" "$@") >"$log.client" 2>&1
    wait $server_pid
    grep -q "$words" "$log.server" && grep -q "$words" "$log.client" && no_complaints "$log.server" "$log.client"
}

case_dtestcm() { simple dtestcm 'server waiting for client' 'DAPL Connection Test Complete' "$@" && grep -q 'ALL 100 CONNECTED on Client' "$log.client"; }

case_dtestsrq() { simple dtestsrq 'ready on port' 'Test Complete' "$@" && grep -q 'ALL 4 CONNECTED on client' "$log.client"; }

# Write with immediate, compare and swap, fetch and add; each ends in a line of its own.
case_dtestx() {
    simple dtestx 'waiting to snd addr' 'immed/atomic test PASSED' "$@" || return
    local operation
    for operation in RDMA_WRITE_WITH_IMMEDIATE_DATA CMP_SWAP FETCH_ADD; do
        grep -q "$operation test - PASSED" "$log.client" && grep -q "$operation test - PASSED" "$log.server" || return
    done
}

# Datagrams; in this mode dtestx's client wants to be told that it is one.
case_datagrams() {
    local limit=30
    serve 'waiting to snd addr' dtestx -P adapter -s "$@" || return
    (on "$client" dtestx -P adapter -c -h "$at" "$@") >"$log.client" 2>&1
    wait $server_pid
    grep -q 'UD test PASSED' "$log.server" && grep -q 'UD test PASSED' "$log.client" && grep -q 'Recv RMR message' "$log.client" &&
        no_complaints "$log.server" "$log.client"
}

# with_dapltest_server COMMAND...: a server for the time of the client's command, ended politely by -T Q.
with_dapltest_server() {
    local status
    serve 'Service Point Ready' dapltest -T S -D adapter || return 1
    (on "$client" "$@") >"$log.client" 2>&1
    status=$?
    (limit=20 on "$client" dapltest -T Q -s "$at" -D adapter) >"$log.quit" 2>&1 || kill $server_pid 2>/dev/null
    wait $server_pid
    [ $status = 0 ] && grep -q 'End of Work' "$log.client" && grep -q 'Exiting' "$log.server" &&
        no_complaints "$log.server" "$log.client"
}

case_transfer() {
    local counters=$1 counter
    shift
    with_dapltest_server dapltest -T T -s "$at" -D adapter -V "$@" || return
    for counter in ${counters//,/ }; do
        awk -v name="Total ${counter//-/ }" 'index($0, name) == 1 { split($0, half, ":"); found = half[2] + 0 > 0 } END { exit !found }' \
            "$log.client" || return
    done
    grep -q 'Transaction Test Finished' "$log.server"
}

case_perf() {
    with_dapltest_server dapltest -T P -s "$at" -D adapter "$@" || return
    grep -qE 'Total Data Exchanged : [0-9.]*[1-9]' "$log.client" && grep -q 'Finished performance test' "$log.server"
}

# Needs no server. The RSP test stops when qualifiers collide, on Debian's library too; every other object comes 30 times.
case_limits() {
    local what
    (limit=120 on "$client" dapltest -T L -D adapter "$@") >"$log.client" 2>&1
    for what in IAs PZs CNOs EVDs EPs PSPs LMRs; do
        grep -qE "LimitTest: $what +(opened|created): 30" "$log.client" || return
    done
    grep -qE 'LimitTest: RSPs created: [0-9]+' "$log.client" && grep -q 'recv buffers posted per EP' "$log.client" &&
        grep -q 'LMR of 0x40000000 bytes OK' "$log.client"
}

declare -A result
failed=0
for pairing in "${pairings[@]}"; do
    client=${pairing%%>*} server=${pairing##*>}
    side "$client"
    side "$server"
    at=$address
    while read -r name kind arguments; do
        [ -n "$only" ] && [[ " $only " != *" $name "* ]] && continue
        [ -n "$only" ] || belongs "$pairing" "$name" || { result[$pairing,$name]=-; continue; }
        without_datagrams "$pairing" "$name" && { result[$pairing,$name]=-; continue; }
        log=$work/${pairing//[>+]/_}.$name
        server_pid=''
        begin=$(date +%s%N)
        set -f
        # DAPL's own provider loses a server's last send now and then ("Server_Info_Send-reaping DTO problem") and aborts at times: a
        # pairing that it is part of has three tries, and the table says which one passed. Ours alone have one.
        tries=1
        case ">$pairing>" in *'>debian>'* | *'>debian-'* | *daplo*) tries=3 ;; esac
        # What it cannot do at all needs no second try.
        [[ $name == *-ud* ]] && tries=1
        # dtest's client does not wait until its server listens: over the user engine, which connects in 0.1 ms, it may be the first.
        [[ $kind-$pairing != dtest-*user* ]] || tries=3
        [ "$name-$pairing" != dtestsrq-debian ] || tries=1
        verdict=FAIL
        for try in $(seq $tries); do
            # shellcheck disable=SC2086
            if "case_$kind" $arguments </dev/null; then
                verdict=pass
                [ "$try" = 1 ] || verdict="pass(try $try)"
                break
            fi
            [ -n "$server_pid" ] && kill $server_pid 2>/dev/null
            wait
            for part in client server quit; do
                [ -e "$log.$part" ] || continue
                echo "---- $pairing $name, try $try: $part, last lines"
                grep -v '^$' "$log.$part" | tail -n "${DAT_CLIENTS_LINES:-8}"
                rm -f "$log.$part"
            done >&2
        done
        [ "$verdict" != FAIL ] || [ "$pairing" = debian ] || failed=$((failed + 1))
        set +f
        result[$pairing,$name]="$verdict $(awk -v ns=$(($(date +%s%N) - begin)) 'BEGIN { printf "%.1fs", ns / 1e9 }')"
        echo "$pairing $name ${result[$pairing,$name]}" >&2
    done < <(cases)
done
[ -n "${DAT_LAB_OUT:-}" ] && cp "$work"/* "$DAT_LAB_OUT/" 2>/dev/null

{
    printf 'case'
    printf '\t%s' "${pairings[@]}"
    printf '\n'
    while read -r name kind arguments; do
        [ -n "$only" ] && [[ " $only " != *" $name "* ]] && continue
        printf '%s' "$name"
        for pairing in "${pairings[@]}"; do
            printf '\t%s' "${result[$pairing,$name]}"
        done
        printf '\n'
    done < <(cases)
} | column -t -s $'\t'
passed=$(printf '%s\n' "${result[@]}" | grep -c '^pass')
for key in "${!result[@]}"; do
    # The step's closing lines have to tell which.
    [[ ${result[$key]} == pass* || ${result[$key]} == - ]] || echo "clients: not passed: ${key/,/ }"
done
echo "clients: $passed passed, $failed of ours failed"
[ $failed = 0 ]
