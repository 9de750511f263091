#!/bin/bash
# Shows the completion of dapltest's client when the acknowledgement of its last message is lost and its server
# disconnects: Debian's DAPL on rdma_rxe at both ends, with one packet dropped, the second acknowledgement that the
# server sends. Fails unless the client's message completes as flushed; clients.sh relies on that where packets are
# lost.
#
# usage: hung_up.sh
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
[ "${1:-}" = --inside ] || exec "$here/run.sh" --two -- bash "$0" --inside

work=$(mktemp -d)
for port in 0 1; do
    echo "adapter u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"v$port 0\" \"\"" >"$work/v$port.conf"
done
# UDP, and opcode 17 after the headers of IP and UDP. The bucket holds one such packet, and takes a minute to fill.
tc qdisc add dev v0 root handle 1: prio
tc filter add dev v0 parent 1: protocol ip u32 match u8 17 0xff at 9 match u8 17 0xff at 28 \
    police rate 8bit burst 100 mtu 2000 conform-exceed drop/ok
DAT_OVERRIDE=$work/v0.conf stdbuf -oL dapltest -T S -D adapter >"$work/server" 2>&1 &
server=$!
for _ in $(seq 100); do
    grep -q 'Service Point Ready' "$work/server" && break
    sleep 0.1
done
DAT_OVERRIDE=$work/v1.conf timeout 60 dapltest -T T -s 10.9.0.1 -D adapter -t 1 -w 1 -i 2 client SR 256 server SR 256 >"$work/client" 2>&1 || true
kill $server
tc -s filter show dev v0 parent 1: | grep -q 'dropped 1,' || { echo "hung_up: not one packet was dropped" >&2 && exit 1; }
grep 'Client_Cmd_Send-reaping' "$work/client" || { tail -n 5 "$work/client" >&2 && exit 1; }
