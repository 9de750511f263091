#!/bin/bash
# Runs Debian's DAPL clients, unmodified, on every pairing of library and provider; prints a table of cases.
#
# usage: clients.sh [--host | --siw] [--all | --cases 'NAME...'] [PAIRING]...      PAIRING: CLIENT or CLIENT>SERVER, of the
# sides below
#        clients.sh [--siw] --table      writes the results of the last runs into docs/clients.md
#
# All cases run in one guest with real rdma_rxe; with --siw on software iWARP instead; with --host on this machine as it
# is, over the user-space engine. The
# cases are in clients/cases; a pairing runs those in which it can differ from the others, with --all every one: DAPL's
# own column is recorded that way.
#
# A case passes if both processes print success, the data and counters that they print are right, and the device has
# sent the packets that the data need: the clients' exit status is 0 even when they fail. A failure without our code
# involved is shown and does not count.
set -uo pipefail
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
dist=${DAT_DIST:-$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")/dist}

# side NAME: selects where a process runs and with which libraries. Sets $library (LD_LIBRARY_PATH), $entry (dat.conf),
# $address, $within.
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
    # One name on all sides: dtest's client opens the name that its server sends.
    entry="adapter u2.0 nonthreadsafe default $object dapl.2.0 \"$params\" \"\""
}

cases() { grep -v '^ *\(#\|$\)' "$here/clients/cases"; }

# belongs PAIRING NAME: true if a pairing runs the case by default. Every case is in the columns of our library and one
# provider. Where only the library differs, or only the wire is shared, the cases that can differ are enough. DAPL
# alone shows that a case is valid; its results for all cases are recorded (docs/clients.md), like those of ibverbs,
# which is softrxe's core on the same verbs.
belongs() {
    local some
    if [ "$device" = siw ]; then
        # iWARP has no datagrams and no immediate data.
        some='dtest dtest-cno dtestcm-many dtestsrq dtestsrq-plain SR-1x1 SR-4x8 SR-rsp RW-4x8 perf-write perf-write-poll quit'
        [[ " $some " == *" $2 "* ]]
        return
    fi
    case $1 in
        debian) some='dtest dtestx dtestcm SR-1x1 RR-1x8 perf-write' ;;
        ibverbs) some='dtest dtest-cno dtest-poll dtest-write dtest-server dtest-client dtestcm dtestcm-wait dtestx dtestx-ud dtestx-udm8 dtestsrq
            dtestsrq-ud SR-4x8 SR-rsp SR-server SR-client RW-4x1 RW-poll RR-1x8 RR-4x8 mixed perf-write-poll perf-read limits features quit' ;;
        # The connection manager over sockets makes the connection; the data path is the same as elsewhere.
        softrxe-scm) some='dtest dtestcm SR-server' ;;
        *'>debian-scm') some='dtest SR-4x8 RR-1x1' ;;
        debian-scm\>*) some='dtest-check SR-4x8 RW-1x1' ;;
        *scm*) some='dtest' ;;
        # Both processes poll memory continuously: on a busy machine each of 1000s of messages waits for the scheduler.
        user) [[ ' dtest-sizes dtest-steps ' != *" $2 "* ]] || return ;;
        debian+user) some='dtest dtest-cno dtest-client dtestcm dtestx dtestx-ud dtestsrq SR-1x1 SR-4x8 SR-rsp SR-server RW-4x8 RR-1x8 mixed perf-write features limits quit' ;;
        dat+daplofa) some='dtest dtest-cno dtestcm dtestx SR-4x8 SR-rsp RW-4x1 RR-1x8 perf-write quit' ;;
        *+*) some='dtest dtest-cno dtestcm dtestx dtestx-ud dtestsrq SR-4x8 SR-rsp RW-4x1 RR-1x8 perf-write quit' ;;
        *'>'*) some='dtest-poll dtest-check dtestcm dtestx dtestsrq-plain SR-4x8 SR-rsp RW-4x1 RR-1x8 perf-read-poll quit' ;;
    esac
    [ -z "${some:-}" ] || [[ " ${some//[[:space:]]/ } " == *" $2 "* ]]
}

# impossible PAIRING NAME: true if one of the two sides does not support the case.
impossible() {
    case $2-$1 in
        # DAPL alone shows that it does not support it.
        *-debian) return 1 ;;
        # Datagrams over a RoCE port; an event that DAPL waits for and rdma_rxe does not raise; notification of a dead
        # peer; invalid handles, which crash it.
        *-ud*-*debian\>* | *-ud*-*\>debian* | *-ud*-*daplo* | *-ud*-*scm*) ;;
        dtestsrq*-*debian\>* | dtestsrq*-*\>debian* | dtestsrq*-*daplo*) [[ $2 != dtestsrq-plain ]] ;;
        *-server-*debian\>* | *-server-*daplo* | *-client-*\>debian* | features-*daplo* | features-debian+*) ;;
        *) return 1 ;;
    esac
}

device=rxe kind=(--netns) results=$(dirname "$dist")/clients.tsv
[ "${1:-}" != --siw ] || { device=siw kind+=(--siw) results=${results%.tsv}-siw.tsv && shift; }
# keep FILE: its results replace the earlier ones of the same pairings and cases.
keep() {
    touch "$results"
    awk -F'\t' '{ key = $1 FS $2; if (!(key in line)) order[++n] = key; line[key] = $0 } END { for (i = 1; i <= n; i++) print line[order[i]] }' \
        "$results" "$1" >"$results.new" && mv "$results.new" "$results"
}

where=host
case ${1:-} in
    --host)
        shift
        # The clients' port numbers are fixed: a network namespace of our own, if permitted, separates concurrent runs.
        if [ -z "${DAT_CLIENTS_ALONE:-}" ] && unshare --net true 2>/dev/null; then
            DAT_CLIENTS_ALONE=1 exec unshare --net bash -c 'ip link set lo up && exec "$0" --host "$@"' "$0" "$@"
        fi ;;
    --inside) where=guest && shift ;;
    --table) exec "$here/clients/table.sh" "$results" "$top/docs/clients.md" ${kind[1]:+siw} ;;
    *)
        # One guest for all.
        back=$(mktemp -d)
        "$here/run.sh" "${kind[@]}" --timeout "${DAT_LAB_TIMEOUT:-1800}" --out "$back" -- bash "$0" ${kind[1]:-} --inside "$@"
        status=$?
        [ ! -e "$back/results.tsv" ] || keep "$back/results.tsv"
        [ -z "${DAT_LAB_OUT:-}" ] || cp -r "$back/." "$DAT_LAB_OUT/"
        rm -rf "$back"
        exit $status ;;
esac

chosen=belongs
case ${1:-} in
    --all) chosen=true && shift ;;
    --cases) only=" $2 " && chosen=named && shift 2 ;;
esac
named() { [[ $only == *" $2 "* ]]; }

pairings=("$@")
if [ ${#pairings[@]} = 0 ] && [ $where = host ]; then
    pairings=(user debian+user)
elif [ ${#pairings[@]} = 0 ] && [ $device = siw ]; then
    pairings=(ibverbs debian)
elif [ ${#pairings[@]} = 0 ]; then
    pairings=(softrxe ibverbs debian debian+ibverbs debian+softrxe dat+daplofa 'softrxe>debian' 'debian>softrxe'
        softrxe-scm 'softrxe-scm>debian-scm' 'debian-scm>softrxe-scm' 'dat+daploscm>softrxe-scm')
fi

work=$(mktemp -d)
for name in $sides; do
    side "$name"
    echo "$entry" >"$work/dat.conf.$name"
done

# on SIDE COMMAND...: executes the command as that side. Call it in a subshell: in the background its process id is
# then the command's.
on() {
    local conf=$work/dat.conf.$1
    side "$1"
    shift
    # libdaploscm takes the address from this netdev.
    local netdev=
    case $entry in *daploscm*) netdev=DAPL_SCM_NETDEV=v0 ;; esac
    # stdbuf: a server's "ready" must be seen at once, although its stdout is a file.
    export DAT_OVERRIDE=$conf DAT_LOG=warn ${library:+LD_LIBRARY_PATH=$library} $netdev
    # timeout(1) counts the clock, of which a busy host takes a part.
    exec $within stdbuf -oL timeout -k 2 $((${limit:-60} * 4)) "$@"
}

# packets: stores the number of packets that rxe0 has sent in $packets; empty without rxe0.
packets() {
    packets=
    { read -r packets </sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; } 2>/dev/null || true
}

. "$here/clients/judge.sh"

# tries PAIRING NAME: prints the number of tries. DAPL's own provider sometimes loses a server's last send
# ("Server_Info_Send-reaping DTO problem") and sometimes aborts: a pairing with it has three tries, and the table shows
# which one passed. Pairings of ours alone have further ones for what follows only, and cases that DAPL does not support have one.
#
# A case of dapltest with rdma_rxe's server has a second try if the client's last message completes as flushed. Dapltest's server
# disconnects as soon as it has answered its client. rdma_rxe reports a message before it acknowledges it, and repeats no
# acknowledgement once its queue pair is gone. So a lost acknowledgement ends the client's message as flushed, and so does a
# disconnection that overtakes it on a busy machine. On rdma_rxe at both ends Debian's DAPL ends like that too (hung_up.sh). A server of
# the user engine repeats the acknowledgement, so its clients have no second try for that. DAT_CLIENTS_LOSS=1 states that packets are lost: other
# failures then have no second try.
#
# A case of dapltest with several threads has another try if a negative number of "connections did not report ready". The threads count
# their endpoints down, and each looks every 10 ms whether the count is 0. A thread that has done its test sets the count anew and counts
# on, whether the others have looked or not (dapltest -d shows it). Of 400 runs beside a guest 16 ended like that, and 7 of 109 with an earlier library.
#
# Dtestcm has two over rdma_cm. The kernel handles the messages of different connections on several processors, so the
# first disconnect may overtake the last RTU. Dtestcm's server counts any event as an established connection, frees the
# endpoint of the late one, and then waits for ever for its end. It does the same over Debian's DAPL.
tries() {
    case $2 in *-ud* | *-server | *-client | features | dtestsrq*) echo 1 && return ;; esac
    echo 3
}

# again PAIRING NAME TRY: succeeds if the failure of that try may have another one.
again() {
    [ -z "$raced" ] || return 0
    case ">$1>" in
    *'>debian>'* | *'>debian-'* | *daplo*) [[ -n $hung_up || -z ${DAT_CLIENTS_LOSS:-} ]] ;;
    *'user>') return 1 ;;
    *) [[ $3 = 1 && (-n $hung_up || -z ${DAT_CLIENTS_LOSS:-} && $2 == dtestcm* && $1 != *scm) ]] ;;
    esac
}

# attempt PAIRING NAME KIND PACKETS ARGUMENTS...: makes one try; kills the server that a failed try leaves.
attempt() {
    local pairing=$1 name=$2 kind=$3 least=$4 part
    shift 4
    # A server's output in an old file would be taken for the new one's.
    rm -f "$log".*
    packets
    sent=$packets
    "case_$kind" "$@" </dev/null
    local verdict=$?
    packets
    [ -z "$sent" ] || sent=$((packets - sent))
    # Connections over sockets send no packets through the device.
    if [ $verdict = 0 ] && [[ -n $sent && $pairing != *user* && $name-$pairing != dtestcm*scm && $sent -lt $least ]]; then
        echo "clients: the device has sent $sent packets, the case needs $least" >>"$log.client"
        verdict=1
    fi
    [ $verdict != 0 ] || return 0
    [ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null
    dapltest_down
    wait
    hung_up='' raced=''
    grep -q 'FAIL: -[0-9]* Server test connections did not report ready' "$log.client" 2>/dev/null && raced=yes
    grep -q 'Client_Cmd_Send-reaping' "$log.client" 2>/dev/null && hung_up=yes
    why=''
    for part in "$log".*; do
        [ -n "$why" ] || why=$(grep -m 1 -E "$complaints" "$part" | cut -c 1-150)
        echo "---- $pairing $name: ${part#"$log".}, last lines"
        grep -v '^$' "$part" | tail -n "${DAT_CLIENTS_LINES:-8}"
        rm -f "$part"
    done >&2
    return 1
}

passed=0 failed=0
for pairing in "${pairings[@]}"; do
    client=${pairing%%>*} server=${pairing##*>}
    side "$client"
    side "$server"
    at=$address
    while read -ra words; do
        name=${words[0]}
        $chosen "$pairing" "$name" && ! impossible "$pairing" "$name" || continue
        log=$work/${pairing//[>+]/_}.$name server_pid=''
        begin=${EPOCHREALTIME/./}
        verdict=FAIL
        for try in $(seq "$(tries "$pairing" "$name")"); do
            if attempt "$pairing" "${words[@]}"; then
                verdict=pass
                [ "$try" = 1 ] || verdict="pass, try $try"
                break
            fi
            again "$pairing" "$name" "$try" || break
        done
        case $verdict-$pairing in pass*) passed=$((passed + 1)) ;; FAIL-debian) ;; *) failed=$((failed + 1)) ;; esac
        tenths=$(((${EPOCHREALTIME/./} - begin) / 100000))
        seconds=$((tenths / 10)).$((tenths % 10))
        printf '%s\t%s\t%s\t%s\t%s\n' "$pairing" "$name" "$verdict" "$seconds" "$sent" >>"$work/results.tsv"
        [ "$verdict" != FAIL ] || echo "clients: not passed: $pairing $name, $seconds s${why:+: $why}" >>"$work/failures"
        echo "$pairing $name: $verdict, $seconds s${sent:+, $sent packets}" >&2
    done < <(cases)
    dapltest_down
done
[ "$where" = guest ] || keep "$work/results.tsv"
[ -z "${DAT_LAB_OUT:-}" ] || cp "$work"/* "$DAT_LAB_OUT/" 2>/dev/null

"$here/clients/table.sh" "$work/results.tsv"
# The step's closing lines must name the failed cases.
[ ! -e "$work/failures" ] || cat "$work/failures"
echo "clients: $passed passed, $failed of ours failed"
rm -rf "$work"
[ $failed = 0 ]
