#!/bin/bash
# Runs our RoCEv2 engine in user space against the kernel's rdma_rxe, in both roles, in one guest: DAPL's clients on
# the kernel's side over Debian's DAPL and over our kernel engine; rping and the perftest programs; the same with
# packets lost and reordered. All packets are captured: every ICRC must be right and tshark must find no malformed
# packet.
#
# usage: interop.sh [--full] [GROUP]...      groups: dapl librdmacm loss; all by default. --full: every case, minutes
#
# The engine runs in the namespace `peer` at 10.9.0.2, the kernel's rxe0 is 10.9.0.1.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
dist=${DAT_DIST:-$target/dist}
us=10.9.0.2 kernel=10.9.0.1 limit=60

passed=0 failed=0
table=''
# row NAME VERDICT NOTE
row() {
    [ "$2" = pass ] && passed=$((passed + 1)) || failed=$((failed + 1))
    table+="$1"$'\t'"$2"$'\t'"${3:-}"$'\n'
    echo "interop: $1 $2 ${3:-}" >&2
}

# ---- inside: the programs, with a capture for each group ----

# Prints a row for each case of clients.sh's table, one pairing a column.
clients_rows() {
    local header=() cells=() i
    while read -r line; do
        IFS=$'\t' read -r -a cells < <(sed -E 's/  +/\t/g' <<<"$line")
        case ${cells[0]} in
            case) header=("${cells[@]}") ;;
            clients:*) break ;;
            *)
                [ ${#header[@]} -gt 1 ] || continue
                for i in $(seq 1 $((${#header[@]} - 1))); do
                    case ${cells[i]:-} in
                        pass*) row "${header[i]} ${cells[0]}$1" pass "${cells[i]#pass}" ;;
                        *) row "${header[i]} ${cells[0]}$1" FAIL "${cells[i]:-no result}" ;;
                    esac
                done ;;
        esac
    done <"$2"
}

# clients SUFFIX CASES PAIRING...: runs clients.sh, which judges by output and counters, and gives Debian's provider
# three tries.
clients() {
    local suffix=$1 cases=$2
    shift 2
    limit=$limit bash "$here/clients.sh" --inside --cases "$cases" "$@" >"$work/table" || true
    local before=$((passed + failed)) wanted
    read -r -a wanted <<<"$cases"
    clients_rows "$suffix" "$work/table"
    [ $((passed + failed - before)) = $((${#wanted[@]} * $#)) ] || row "table of $*$suffix" FAIL 'rows are missing'
}

in_peer() { ip netns exec peer "$@"; }

# Runs a DAT program of ours on the engine.
interop() {
    in_peer env DAT_OVERRIDE="$work/dat.conf" LD_LIBRARY_PATH="$dist/lib" DAT_LOG=warn timeout "$limit" "$target/debug/examples/interop" \
        user "$@"
}

# await FILE TEXT: waits until a server prints that it is ready, 15 s at most.
await() {
    local i
    for i in $(seq 150); do
        grep -q "$2" "$1" 2>/dev/null && return
        sleep 0.1
    done
    return 1
}

# ours_serves NAME WANTED PROGRAM PEER...: runs our `interop user PROGRAM server` with the peer's command as its
# client.
ours_serves() {
    twice "$1" "$2" serve_once "${@:3}"
}

serve_once() {
    local program=$1 ours
    shift
    their_status=0
    interop "$program" server >"$work/ours" 2>&1 &
    ours=$!
    if await "$work/ours" ready; then
        timeout "$limit" "$@" >"$work/theirs" 2>&1 || their_status=$?
    else
        their_status='not started'
    fi
    wait $ours
    our_status=$?
}

# ours_connects NAME WANTED PEER... -- ARGUMENTS...: runs the peer's command as server and our `interop user ARGUMENTS`
# as its client, which retries until the server listens.
ours_connects() {
    twice "$1" "$2" connect_once "${@:3}"
}

connect_once() {
    local server=() peer
    while [ "$1" != -- ]; do
        server+=("$1")
        shift
    done
    shift
    timeout "$limit" "${server[@]}" >"$work/theirs" 2>&1 &
    peer=$!
    interop "$@" >"$work/ours" 2>&1
    our_status=$?
    wait $peer
    their_status=$?
}

# twice NAME WANTED ONCE...: makes a row for ONCE, with two tries: the perftest programs give up after seven time-outs
# of 67 ms, which a guest on a busy host can miss. The row says if the second try was needed.
twice() {
    local name=$1 wanted=$2 try
    shift 2
    for try in 1 2; do
        : >"$work/ours" && : >"$work/theirs"
        "$@"
        if [ "$our_status" = 0 ] && [ "$their_status" = 0 ] && grep -qE "$wanted" "$work/ours"; then
            row "$name" pass "$(sed -n 's/^interop: //p' "$work/ours" | tail -n 1)$([ $try = 1 ] || echo ", at the second try")"
            return
        fi
        { echo "---- $name, try $try: ours ended with $our_status"; tail -n 15 "$work/ours"
          echo "---- $name, try $try: the peer ended with $their_status"; tail -n 50 "$work/theirs"; } >&2
    done
    row "$name" FAIL "ours ended with $our_status, the peer with $their_status"
}

group_dapl() {
    local debian='dtest RW-1x8 RR-4x1' softrxe='dtest-cno SR-4x1 perf-write'
    [ -n "$full" ] && debian='dtest dtest-cno dtest-poll dtest-check dtest-write SR-4x1 RW-1x8 RR-4x1 perf-write' &&
        softrxe='dtest dtest-cno dtest-poll dtest-check dtest-write SR-1x8 SR-4x8 RW-4x1 RW-4x8 RR-1x8 RR-4x8 perf-write perf-read-poll'
    clients '' "$debian" 'user>debian' 'debian>user'
    clients '' "$softrxe" 'user>softrxe' 'softrxe>user'
}

group_librdmacm() {
    ours_serves 'rping>user' '20 rounds' rping rping -c -a $us -C 20 -S 4000 -V
    ours_connects 'user>rping' '20 rounds of 4000 bytes compared' rping -s -a $kernel -C 20 -S 4000 -V -- rping client $kernel 20 4000
    ours_serves 'ucmatose>user' '10 messages each way' ucmatose ucmatose -s $us
    ours_connects 'user>ucmatose' '10 messages each way' ucmatose -b $kernel -- ucmatose client $kernel
    ours_serves 'ib_write_bw>user' 'memory written' perftest ib_write_bw -d rxe0 -R -n 100 -s 8192 $us
    ours_serves 'ib_send_bw>user' '100 messages received' perftest ib_send_bw -d rxe0 -R -n 100 -s 4096 $us
    ours_serves 'ib_read_lat>user' 'memory untouched' perftest ib_read_lat -d rxe0 -R -n 100 -s 64 $us
    ours_serves 'ib_atomic_bw>user' 'memory written' perftest ib_atomic_bw -d rxe0 -R -n 100 -A FETCH_AND_ADD $us
    ours_connects 'user>ib_write_bw' '100 times Write' ib_write_bw -d rxe0 -R -n 100 -s 8192 -- perftest client $kernel write 100 8192
    ours_connects 'user>ib_read_bw' '100 times Read' ib_read_bw -d rxe0 -R -n 100 -s 8192 -- perftest client $kernel read 100 8192
    [ -n "$full" ] || return 0
    ours_serves 'ib_read_bw>user' 'memory untouched' perftest ib_read_bw -d rxe0 -R -n 100 -s 8192 $us
    ours_connects 'user>ib_send_bw' '100 times Send' ib_send_bw -d rxe0 -R -n 100 -s 4096 -- perftest client $kernel send 100 4096
}

# A lost packet of the kernel costs two seconds, one of its connection manager four to six.
group_loss() {
    tc qdisc add dev v0 root netem loss 1% delay 1ms reorder 5% 50%
    in_peer tc qdisc add dev v1 root netem loss 1% delay 1ms reorder 5% 50%
    limit=180
    ours_serves 'rping>user, loss' '20 rounds' rping rping -c -a $us -C 20 -S 16000 -V
    ours_connects 'user>rping, loss' '20 rounds' rping -s -a $kernel -C 20 -S 16000 -V -- rping client $kernel 20 16000
    DAT_CLIENTS_LOSS=1 clients ', loss' "RW-1x8${full:+ SR-4x1 RR-4x1 dtest}" 'user>softrxe' 'softrxe>user'
    tc qdisc del dev v0 root
    in_peer tc qdisc del dev v1 root
}

if [ "${1:-}" = --inside ]; then
    shift
    full=$1
    shift
    work=$(mktemp -d)
    params="v1 0 engine=user pcap=$DAT_LAB_OUT/engine.%p.pcap"
    echo "user u2.0 threadsafe default libdat-provider-softrxe.so.2 dapl.2.0 \"$params\" \"\"" >"$work/dat.conf"
    groups=("$@")
    for group in "${groups[@]}"; do
        ip netns exec peer tcpdump -Z root --immediate-mode -B 16384 -s 0 -i v1 -w "$work/$group.pcap" udp port 4791 2>"$work/tcpdump" &
        tcpdump=$!
        await "$work/tcpdump" 'listening on' || row "capture of $group" FAIL "tcpdump does not start"
        # Path MTU 1024, and once 4096: then our payload goes out from where it lies.
        mtu=1500
        [ "$group" = librdmacm ] && mtu=4200
        ip link set v0 mtu $mtu && in_peer ip link set v1 mtu $mtu || row "MTU of $group" FAIL
        begin=$SECONDS
        "group_$group"
        echo "interop: group $group took $((SECONDS - begin)) s" >&2
        sleep 1
        kill $tcpdump
        wait $tcpdump 2>/dev/null
        cp "$work/$group.pcap" "$DAT_LAB_OUT/"
    done
    printf '%s' "$table" >"$DAT_LAB_OUT/table"
    exit 0
fi

# ---- outside: build, the guest, then the captures ----

full=''
[ "${1:-}" = --full ] && full=yes && shift
groups=("$@")
[ ${#groups[@]} -gt 0 ] || groups=(dapl librdmacm loss)
cd "$top" || exit
[ -e "$dist/lib/libdat-provider-softrxe.so.2" ] || scripts/dist.sh || exit
cargo build --quiet --locked -p udapl --example interop && cargo build --quiet --locked -p softrxe-proto --example check_captures || exit
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export DAT_DIST=$dist
"$here/run.sh" --netns --out "$out" --timeout "${DAT_LAB_TIMEOUT:-900}" -- bash "$0" --inside "$full" "${groups[@]}"
status=$?
[ $status = 0 ] || row "the guest" FAIL "status $status"
while IFS=$'\t' read -r name verdict note; do
    row "$name" "$verdict" "$note" 2>/dev/null
done <"$out/table"

# check NAME CAPTURE...: checks that every ICRC is right, and that tshark reports no malformed packet.
check() {
    local name=$1 checked verdict capture malformed=''
    shift
    checked=$("$target/debug/examples/check_captures" "$@" 2>&1) && verdict=pass || verdict=FAIL
    row "ICRCs: $name" $verdict "$(tail -n 1 <<<"$checked")"
    [ $verdict = pass ] || head -n 20 <<<"$checked" >&2
    verdict=pass
    for capture in "$@"; do
        # Payload stays undissected: tshark's heuristics take random bytes for broken messages of other protocols.
        malformed+=$(tshark -r "$capture" --disable-protocol rpcordma -o infiniband.identify_payload:FALSE -Y _ws.malformed \
            2>"$out/tshark") || { verdict=FAIL && cat "$out/tshark" >&2; }
    done
    [ -z "$malformed" ] || { verdict=FAIL && head -n 20 <<<"$malformed" >&2; }
    row "tshark: $name" $verdict "$(grep -c . <<<"$malformed") malformed"
}
for group in "${groups[@]}"; do
    check "$group" "$out/$group.pcap"
done
# Captures that `pcap=` wrote, without privileges.
[[ " ${groups[*]} " != *" librdmacm "* ]] || check "the engine's own captures" "$out"/engine.*.pcap
keep=${DAT_INTEROP_KEEP:-}
# The captures of failures, even if a second try passed, are kept.
[ $failed = 0 ] && ! grep -qE 'try 2|second try' "$out/table" || keep=${keep:-$target/interop-captures}
[ -z "$keep" ] || { mkdir -p "$keep" && cp "$out"/*.pcap "$keep/" && echo "interop: the captures are in $keep"; }

printf '%s' "$table" | column -t -s $'\t'
echo "interop: $passed passed, $failed failed"
[ $failed = 0 ]
