#!/bin/bash
# Debian's DAPL clients, unmodified, on every pairing of library and provider; prints a table of cases.
#
# usage: clients.sh [--host] [--all | --cases 'NAME...'] [PAIRING]...      PAIRING: CLIENT or CLIENT>SERVER, of the sides below
#        clients.sh --table      writes what the last runs showed into docs/clients.md
#
# All in one guest with real rdma_rxe; with --host on this machine as it is, over the user-space engine. The cases are in clients/cases;
# a pairing runs those in which it can differ from the others, with --all every one: DAPL's own column is recorded that way.
#
# A case passes when both processes say so in words, the data and counters that they show are right and the device has sent the packets
# that the data need: the clients' exit status is 0 even when they fail. What fails without one line of ours involved is shown and does
# not count.
set -uo pipefail
export LC_ALL=C

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

cases() { grep -v '^ *\(#\|$\)' "$here/clients/cases"; }

# belongs PAIRING NAME: whether a pairing has the case without being asked. Every case is in the columns of our library and one provider;
# where only the library is another, or only the wire is shared, what differs there is enough. DAPL alone is there to see that a case
# is a fair one; what it does with all of them is recorded (docs/clients.md), like what ibverbs does, which is softrxe's core on the same verbs.
belongs() {
    local some
    case $1 in
        debian) some='dtest dtestx dtestcm SR-1x1 RR-1x8 perf-write' ;;
        ibverbs) some='dtest dtest-cno dtest-poll dtest-write dtest-server dtest-client dtestcm dtestcm-wait dtestx dtestx-ud dtestx-udm8 dtestsrq
            dtestsrq-ud SR-4x8 SR-rsp SR-server SR-client RW-4x1 RW-poll RR-1x8 RR-4x8 mixed perf-write-poll perf-read limits features quit' ;;
        # The connection manager over sockets makes the connection; what runs over it is the same as elsewhere.
        softrxe-scm) some='dtest dtestcm SR-server' ;;
        *'>debian-scm') some='dtest SR-4x8 RR-1x1' ;;
        debian-scm\>*) some='dtest-check SR-4x8 RW-1x1' ;;
        *scm*) some='dtest' ;;
        # Both processes poll memory without pause: on a busy machine they wait for the scheduler, for each of 1000s of messages.
        user) [[ ' dtest-sizes dtest-steps ' != *" $2 "* ]] || return ;;
        debian+user) some='dtest dtest-cno dtest-client dtestcm dtestx dtestx-ud dtestsrq SR-1x1 SR-4x8 SR-rsp SR-server RW-4x8 RR-1x8 mixed perf-write features limits quit' ;;
        dat+daplofa) some='dtest dtest-cno dtestcm dtestx SR-4x8 SR-rsp RW-4x1 RR-1x8 perf-write quit' ;;
        *+*) some='dtest dtest-cno dtestcm dtestx dtestx-ud dtestsrq SR-4x8 SR-rsp RW-4x1 RR-1x8 perf-write quit' ;;
        *'>'*) some='dtest-poll dtest-check dtestcm dtestx dtestsrq-plain SR-4x8 SR-rsp RW-4x1 RR-1x8 perf-read-poll quit' ;;
    esac
    [ -z "${some:-}" ] || [[ " ${some//[[:space:]]/ } " == *" $2 "* ]]
}

# impossible PAIRING NAME: what one of the two sides cannot do.
impossible() {
    case $2-$1 in
        # DAPL alone shows that it cannot.
        *-debian) return 1 ;;
        # Datagrams over a RoCE port; an event that rdma_rxe does not raise, and DAPL waits for; to be told that a peer is gone;
        # handles that are none, which crash it.
        *-ud*-*debian\>* | *-ud*-*\>debian* | *-ud*-*daplo* | *-ud*-*scm*) ;;
        dtestsrq*-*debian\>* | dtestsrq*-*\>debian* | dtestsrq*-*daplo*) [[ $2 != dtestsrq-plain ]] ;;
        *-server-*debian\>* | *-server-*daplo* | *-client-*\>debian* | features-*daplo* | features-debian+*) ;;
        *) return 1 ;;
    esac
}

results=$(dirname "$dist")/clients.tsv
# keep FILE: its results take the place of what was known of the same pairings and cases.
keep() {
    touch "$results"
    awk -F'\t' '{ key = $1 FS $2; if (!(key in line)) order[++n] = key; line[key] = $0 } END { for (i = 1; i <= n; i++) print line[order[i]] }' \
        "$results" "$1" >"$results.new" && mv "$results.new" "$results"
}

where=host
case ${1:-} in
    --host)
        shift
        # The clients' port numbers are fixed: a network of our own, if we may, keeps others' runs apart.
        if [ -z "${DAT_CLIENTS_ALONE:-}" ] && unshare --net true 2>/dev/null; then
            DAT_CLIENTS_ALONE=1 exec unshare --net bash -c 'ip link set lo up && exec "$0" --host "$@"' "$0" "$@"
        fi ;;
    --inside) where=guest && shift ;;
    --table) exec "$here/clients/table.sh" "$results" "$top/docs/clients.md" ;;
    *)
        # One guest for everything.
        back=$(mktemp -d)
        "$here/run.sh" --netns --timeout "${DAT_LAB_TIMEOUT:-1800}" --out "$back" -- bash "$0" --inside "$@"
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
elif [ ${#pairings[@]} = 0 ]; then
    pairings=(softrxe ibverbs debian debian+ibverbs debian+softrxe dat+daplofa 'softrxe>debian' 'debian>softrxe'
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
    # stdbuf: a server's "ready" must be seen when it is said, though its stdout is a file.
    export DAT_OVERRIDE=$conf DAT_LOG=warn ${library:+LD_LIBRARY_PATH=$library} $netdev
    exec $within stdbuf -oL timeout -k 2 "${limit:-60}" "$@"
}

# packets: how many rxe0 has sent, in $packets; nothing where there is none.
packets() {
    packets=
    { read -r packets </sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; } 2>/dev/null || true
}

. "$here/clients/judge.sh"

# tries PAIRING NAME: DAPL's own provider loses a server's last send now and then ("Server_Info_Send-reaping DTO problem") and aborts at
# times: a pairing that it is part of has three tries, and the table says which one passed. Ours alone have one, and so has what DAPL
# cannot do at all.
#
# DAT_CLIENTS_LOSS=1 says that packets are lost: then one failure has a second try where the server is rdma_rxe's. Dapltest's server hangs
# up as soon as it has answered its client; if the acknowledgement of the client's last message was lost, rdma_rxe has nobody left to
# repeat it, and the client is told that its message was flushed. On rdma_rxe at both ends Debian's DAPL ends like that too (hung_up.sh).
# A server of the user engine says it once more and has no such excuse.
tries() {
    case $2 in *-ud* | *-server | *-client | features | dtestsrq*) echo 1 && return ;; esac
    case ">$1>" in
    *'>debian>'* | *'>debian-'* | *daplo*) echo 3 ;;
    *'user>') echo 1 ;;
    *) [ -z "${DAT_CLIENTS_LOSS:-}" ] && echo 1 || echo 2 ;;
    esac
}

# attempt PAIRING NAME KIND PACKETS ARGUMENTS...: one try; the server that a failed one leaves is ended.
attempt() {
    local pairing=$1 name=$2 kind=$3 least=$4 part
    shift 4
    # A server's words in an old file would be taken for the new one's.
    rm -f "$log".*
    packets
    sent=$packets
    "case_$kind" "$@" </dev/null
    local verdict=$?
    packets
    [ -z "$sent" ] || sent=$((packets - sent))
    # Connections over sockets are none of the device's.
    if [ $verdict = 0 ] && [[ -n $sent && $pairing != *user* && $name-$pairing != dtestcm*scm && $sent -lt $least ]]; then
        echo "clients: the device has sent $sent packets, the case needs $least" >>"$log.client"
        verdict=1
    fi
    [ $verdict != 0 ] || return 0
    [ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null
    dapltest_down
    wait
    hung_up=''
    grep -q 'Client_Cmd_Send-reaping' "$log.client" 2>/dev/null && hung_up=yes
    for part in "$log".*; do
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
            [ -z "${DAT_CLIENTS_LOSS:-}" ] || [ -n "$hung_up" ] || break
        done
        case $verdict-$pairing in pass*) passed=$((passed + 1)) ;; FAIL-debian) ;; *) failed=$((failed + 1)) ;; esac
        tenths=$(((${EPOCHREALTIME/./} - begin) / 100000))
        seconds=$((tenths / 10)).$((tenths % 10))
        printf '%s\t%s\t%s\t%s\t%s\n' "$pairing" "$name" "$verdict" "$seconds" "$sent" >>"$work/results.tsv"
        echo "$pairing $name: $verdict, $seconds s${sent:+, $sent packets}" >&2
    done < <(cases)
    dapltest_down
done
[ "$where" = guest ] || keep "$work/results.tsv"
[ -z "${DAT_LAB_OUT:-}" ] || cp "$work"/* "$DAT_LAB_OUT/" 2>/dev/null

"$here/clients/table.sh" "$work/results.tsv"
# The step's closing lines have to tell which.
awk -F'\t' '$3 !~ /^pass/ { print "clients: not passed: " $1 " " $2 }' "$work/results.tsv"
echo "clients: $passed passed, $failed of ours failed"
rm -rf "$work"
[ $failed = 0 ]
