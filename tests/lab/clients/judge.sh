# How each kind of case is run and judged: case_KIND ARGUMENTS, true when it passed. Sourced by ../clients.sh, which sets
# client, server   the sides the two processes run as, for `on`
# at, log          the server's address, and the stem of the case's log files
# where, device    guest or host; rxe or siw
# shellcheck shell=bash disable=SC2154

# Under emulation a process costs more to start than all of this to compute: what bash can do itself it does.

# says WORDS FILE...: one of the files holds the words, a regular expression of which a line's end is a character like others.
says() {
    local words=$1 text
    shift
    for text; do
        [ -e "$text" ] || continue
        IFS= read -rd '' text <"$text"
        [[ ! $text =~ $words ]] || return 0
    done
    return 1
}

# lasting N CONDITION...: the condition holds within N seconds. Looks are counted, and not the clock: where this machine gets no
# processor of its host, looks come later.
lasting() {
    local looks=$(($1 * 20))
    shift
    until "$@"; do
        [ $((looks -= 1)) -ge 0 ] || return
        # A process of its own: a `read -t` that times out while a child ends makes bash 5.2 forget to see its children end.
        sleep 0.05
    done
    return 0
}

gone() { ! kill -0 "$1" 2>/dev/null; }

# said WORDS FILE PID: the process says the words; it has 20 s, and must not end before.
said() { lasting 20 said_or_gone "$@" && says "$1" "$2"; }
said_or_gone() { says "$1" "$2" || gone "$3"; }

ends() { lasting 20 gone "$1"; }

# child PID: the program that a process started by `on` is there to end in time, in $program_pid. Not every kernel lists children.
child() {
    { read -r program_pid _ <"/proc/$1/task/$1/children"; } 2>/dev/null || program_pid=$(pgrep -P "$1")
}

# asleep PID: a server's program. It says that it waits before it listens, and a client that comes in between is turned away.
asleep() {
    local state= i
    for i in 1 2 3; do
        { child "$1" && read -r _ _ state _ <"/proc/$program_pid/stat"; } 2>/dev/null
        [ "$state" = S ] || return
        sleep 0.01
    done
    return 0
}

# serve WORDS COMMAND...: starts the server and returns when it says the words and waits.
serve() {
    local words=$1
    shift
    (on "$server" "$@") >"$log.server" 2>&1 &
    server_pid=$!
    said "$words" "$log.server" $server_pid || return
    # One that polls never sleeps.
    lasting 2 asleep $server_pid || true
}

# Messages of the clients, the library or the provider that a run without fault never prints.
complaints='fail|error[^s]|ERROR|Error|mismatch|swallow|timed out|[Aa]ssert|panick|Invalid_DAT|symbol lookup'
# dtestx -p prints counters, some of them of errors.
no_complaints() { ! says "$complaints" "$@" || { says DCNT_ "$@" && ! grep -hv '^DCNT_' "$@" | grep -qE "$complaints"; }; }

# numbered COUNT: a regular expression of what dtest's stream of writes with immediate data appends to its text.
numbered() { [ "$device" = siw ] || echo "[^[:cntrl:]]*completed == $1"; }

# "client RDMA read data" or "server RDMA write data" and the other way round: one of them may be written over the other one, byte by byte,
# while the peer reads it.
either='[cs][le][ir][ev][ne][tr] RDMA [rw][er][ai][dt][ e][d ][ad][ta][at]a?'

case_dtest() {
    # -W polls memory without a call into the library: two busy threads beside those that work, on two cores;
    # over the user engine, and in a guest of a busy host, a scheduler's time slice for each message.
    local limit=300
    serve 'Server is waiting' dtest -P adapter -s "$@" || return 1
    (on "$client" dtest -P adapter -h "$at" "$@") >"$log.client" 2>&1
    # A server whose client gave up waits to the end of its time.
    says 'DAPL Test Complete. PASSED' "$log.client" || kill $server_pid 2>/dev/null
    wait $server_pid
    says 'DAPL Test Complete. PASSED' "$log.server" && says 'DAPL Test Complete. PASSED' "$log.client" || return 1
    # PASSED alone also follows a run that moved nothing.
    case " $* " in
        *' -D '*) says 'DATA CHECK' "$log.client" && says 'RDMA write PingPong' "$log.client" ;;
        *' -a '* | *' -i '*) [ "$(grep -c 'RDMA write PingPong: (1000 x' "$log.client")" -ge 3 ] ;;
        # The last bytes of the stream; with -u it goes one way. On siw, without immediate data, dtest does not number them.
        *' -w '*-u*) says "SERVER: RDMA write buffer contains: client RDMA write data$(numbered 50)" "$log.server" ;;
        *' -w '*) says "CLIENT: RDMA write buffer contains: server RDMA write data$(numbered 1000)" "$log.client" ;;
        *' -u '*)
            says 'SERVER: RDMA write buffer contains: client RDMA write data' "$log.server" &&
            says 'CLIENT: RCV RDMA read buffer contains: '"$either" "$log.client" &&
            says 'RDMA write \(uni-direction\)' "$log.client" ;;
        *)
            says 'CLIENT: RDMA write buffer contains: server RDMA write data' "$log.client" &&
            # What the peer's buffer holds when it is read depends on how far the peer is.
            says 'CLIENT: RCV RDMA read buffer contains: '"$either" "$log.client" &&
            says 'SERVER: RCV RDMA read buffer contains: '"$either" "$log.server" &&
            says 'Message PingPong' "$log.client" && says 'RDMA write \(bi-direction\)' "$log.client" ;;
    esac && no_complaints "$log.server" "$log.client" || return
    case " $* " in *' -t '*) says 'connect: +[0-9.]+ usec' "$log.client" ;; esac
}

# simple COMMAND READY DONE: a client and a server that both say DONE.
simple() {
    local command=$1 ready=$2 words=$3 limit=60
    shift 3
    serve "$ready" "$command" -P adapter -s "$@" || return 1
    (on "$client" "$command" -P adapter -h "$at" "$@") >"$log.client" 2>&1
    wait $server_pid
    says "$words" "$log.server" && says "$words" "$log.client" && no_complaints "$log.server" "$log.client"
}

case_dtestcm() { simple dtestcm 'server waiting for client' 'DAPL Connection Test Complete' "$@" && says "ALL $2 CONNECTED on Client" "$log.client"; }

case_dtestsrq() { simple dtestsrq 'ready on port' 'Test Complete' "$@" && says "ALL $2 CONNECTED on client" "$log.client"; }

# Write with immediate, compare and swap, fetch and add; each ends in a line of its own.
case_dtestx() {
    simple dtestx 'waiting to snd addr' 'immed/atomic test PASSED' "$@" || return
    local operation
    for operation in RDMA_WRITE_WITH_IMMEDIATE_DATA CMP_SWAP FETCH_ADD; do
        says "$operation test - PASSED" "$log.client" && says "$operation test - PASSED" "$log.server" || return
    done
}

# Datagrams; in this mode dtestx's client wants to be told that it is one.
case_datagrams() {
    local limit=30
    serve 'waiting to snd addr' dtestx -P adapter -s "$@" || return
    (on "$client" dtestx -P adapter -c -h "$at" "$@") >"$log.client" 2>&1
    wait $server_pid
    says 'UD test PASSED' "$log.server" && says 'UD test PASSED' "$log.client" && says 'Recv RMR message' "$log.client" &&
        no_complaints "$log.server" "$log.client"
}

# dapltest's server serves one client after the other; it stays up for all cases of a pairing, and ends with one of them, or with -T Q.
dapltest_pid=
dapltest_up() {
    local limit=900
    [ -n "$dapltest_pid" ] && kill -0 "$dapltest_pid" 2>/dev/null && return
    serve 'Service Point Ready' dapltest -T S -D adapter || return
    dapltest_is_up
}
dapltest_is_up() {
    dapltest_pid=$server_pid dapltest_log=$work/dapltest.$RANDOM server_pid=
    mv "$log.server" "$dapltest_log"
}
dapltest_down() {
    [ -z "$dapltest_pid" ] || kill "$dapltest_pid" 2>/dev/null
    [ -z "$dapltest_pid" ] || wait "$dapltest_pid"
    dapltest_pid=
}

# served: the server says that it is done with this client.
served() {
    IFS= read -rd '' text <"$dapltest_log"
    printf '%s' "${text:from}" >"$log.server"
    says "$words" "$log.server"
}

# of_dapltest WORDS ARGUMENTS...: a client of dapltest's server, which says the words when it is done with it.
of_dapltest() {
    local words=$1 from text
    shift
    dapltest_up || return
    IFS= read -rd '' text <"$dapltest_log"
    from=${#text}
    (on "$client" dapltest "$@") >"$log.client" 2>&1
    # Where packets are lost, their last words take a while.
    lasting 30 served
    if ! says "$words" "$log.server" || ! says 'End of Work' "$log.client" || ! no_complaints "$log.server" "$log.client"; then
        dapltest_down
        return 1
    fi
}

# counted COUNTERS: dapltest's report has them above zero.
counted() {
    local counter
    for counter in ${1//,/ }; do
        says "Total ${counter//-/ } +: +[0-9]*\\.?[0-9]*[1-9]" "$log.client" || return
    done
}

case_transfer() {
    local counters=$1 arguments i
    shift
    of_dapltest 'Transaction Test Finished' -T T -s "$at" -D adapter "$@" || return
    counted "$counters" && return
    # A test that is over within one tick of dapltest's clock has no report: once more, with more messages.
    says 'cannot calculate stats' "$log.client" || return
    arguments=("$@")
    for i in "${!arguments[@]}"; do
        [ "${arguments[i]}" != -i ] || arguments[i + 1]=$((arguments[i + 1] * 20))
    done
    of_dapltest 'Transaction Test Finished' -T T -s "$at" -D adapter "${arguments[@]}" && counted "$counters"
}

case_perf() {
    of_dapltest 'Finished performance test.  Exiting' -T P -s "$at" -D adapter "$@" &&
        says 'Total Data Exchanged : [0-9.]*[1-9]' "$log.client"
}

# A quality of service that no provider has: the client says so and ends.
case_quality() {
    local quality
    for quality in HT LL EC PM; do
        (limit=20 on "$client" dapltest -T T -s "$at" -D adapter -R $quality "$@") >"$log.client" 2>&1
        says 'Cannot connect Endpoint DAT_MODEL_NOT_SUPPORTED' "$log.client" && says 'End of Work' "$log.client" || return
    done
}

# A server of another port, and its end.
case_port() {
    serve 'Service Point Ready' dapltest -T S -D adapter -n "$1" || return
    (on "$client" dapltest -T T -s "$at" -D adapter -n "$1" -V -i 50 client SR 4096 2 server SR 4096 2) >"$log.client" 2>&1
    (limit=20 on "$client" dapltest -T Q -s "$at" -D adapter -n "$1") >"$log.quit" 2>&1
    ends $server_pid && counted Send,Recv && says 'Exiting' "$log.server" && no_complaints "$log.server" "$log.client" "$log.quit"
}

case_quit() {
    dapltest_up || return
    (limit=20 on "$client" dapltest -T Q -s "$at" -D adapter) >"$log.client" 2>&1
    ends "$dapltest_pid"
    cp "$dapltest_log" "$log.server"
    dapltest_down
    says 'Exiting' "$log.server" && no_complaints "$log.client"
}

# FEATURE:PASSES...: dapltest's tests of features, and how many of each pass. Debian's library has the client crash in queryinfo.
case_features() {
    local feature
    dapltest_up || return
    for feature; do
        (limit=30 on "$client" dapltest -T F -D adapter -s "$at" -f "${feature%:*}") >"$log.client.${feature%:*}" 2>&1
        cat "$log.client.${feature%:*}" >>"$log.client"
        [ "$(grep -c 'Result: PASS' "$log.client.${feature%:*}")" = "${feature#*:}" ] || return
        ! says 'Result: FAIL' "$log.client" || return
    done
}

# made COUNT: of every object, as limits say. The RSP test stops when qualifiers collide, on Debian's library too.
made() {
    local what
    for what in IAs PZs CNOs EVDs EPs PSPs LMRs; do
        says "LimitTest: $what +(opened|created): $1" "$log.client" || return
    done
    says 'LimitTest: RSPs created: [0-9]+' "$log.client" && says 'recv buffers posted per EP' "$log.client" &&
        says 'LMR of 0x40000000 bytes OK' "$log.client"
}

# Needs no server.
case_limits() {
    (limit=120 on "$client" dapltest -T L -D adapter "$@") >"$log.client" 2>&1
    made "$4"
}

# The same tests, each by its name in a process of its own.
case_limits_each() {
    local kind
    for kind in ia pz cno evd rsp psp ep lmr rpost size_lmr; do
        (on "$client" dapltest -T L -D adapter "$@" limit_$kind)
    done >"$log.client" 2>&1
    made "$4"
}

# under_way PROGRAM: data moves now.
under_way() {
    local i from
    if [ "$1" = dtest ]; then
        # With -c both sleep a second now, and another one later.
        said 'RDMA READ DATA' "$log.client" "$client_pid" && said 'RDMA READ DATA' "$log.server" "$server_pid"
        return
    fi
    said 'Starting Test' "$log.client" "$client_pid" || return
    packets
    if [ -n "$packets" ]; then
        lasting 20 beyond $((packets + 300))
        return
    fi
    # The user engine and siw have no counter that is seen from here. The server works from the connection on; to connect takes less.
    child "$server_pid" && lasting 60 has_worked "$program_pid" $(($(ticks "$program_pid") + 50))
}
beyond() { packets && [ "$packets" -gt "$1" ]; }
# Processor time of a process, in hundredths of a second.
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"; }
has_worked() { [ "$(ticks "$1")" -gt "$2" ]; }

# killed VICTIM PROGRAM ARGUMENTS: while data moves, the server or the client is killed. The other one is told: dtest and dapltest's
# client end by themselves and say that it failed; dapltest's server goes on. Then a new client finds a server.
case_killed() {
    local victim=$1 program=$2 limit=900 client_pid
    shift 2
    dapltest_down
    if [ "$program" = dtest ]; then
        limit=60
        serve 'Server is waiting' dtest -P adapter -s "$@" || return
        (on "$client" dtest -P adapter -h "$at" "$@") >"$log.client" 2>&1 &
    else
        serve 'Service Point Ready' dapltest -T S -D adapter || return
        (on "$client" dapltest -T "$program" -s "$at" -D adapter "$@") >"$log.client" 2>&1 &
    fi
    client_pid=$!
    if under_way "$program"; then
        # The program is a child of the one that bounds its time.
        local pid_of="${victim}_pid"
        child "${!pid_of}" && kill -9 "$program_pid"
        survived "$victim" "$program"
    else
        false
    fi
    local verdict=$?
    kill "$client_pid" 2>/dev/null
    wait "$client_pid" 2>/dev/null
    [ "$victim-$program" = client-T ] || kill "$server_pid" 2>/dev/null
    [ "$victim-$program" = client-T ] || wait "$server_pid" 2>/dev/null
    [ $verdict = 0 ] || return
    # A new client.
    [ "$victim-$program" != client-T ] || dapltest_is_up
    local log=$log.after
    if [ "$program" = dtest ]; then
        case_dtest -b 4096 -w
    else
        case_transfer Send,Recv -V -t 1 -w 1 -i 50 client SR 4096 2 server SR 4096 2
    fi
}

# What dapltest prints for a request that failed. "FAILURE" is a flushed one. It prints "LengthError" for every other error. rdma_rxe
# answers a message to a process that is being killed with "remote operational error" at times: in 3 of 80 runs.
failed_request='DTO problem, status = (FAILURE|LengthError)'

# survived VICTIM PROGRAM: what the other one says.
survived() {
    ! says '[Aa]ssert|panick' "$log.client" "$log.server" || return
    case $1-$2 in
        server-dtest) ends "$client_pid" && says 'Test Complete. FAILED' "$log.client" ;;
        client-dtest) ends "$server_pid" && says 'Test Complete. FAILED' "$log.server" ;;
        server-*) ends "$client_pid" && says "$failed_request" "$log.client" && says 'End of Work' "$log.client" ;;
        client-*) said 'Transaction Test Finished' "$log.server" "$server_pid" && says "$failed_request" "$log.server" ;;
    esac
}
