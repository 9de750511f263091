#!/bin/bash
# Tests the lab itself: results are returned exactly, and no failure looks like success.
#
# usage: selftest.sh [--failures | CASE...]
#
# The default are all cases but `kernel` and `namespaces`, which download another kernel (110 MB). --failures omits those whose subject
# a later step of `make test` needs itself: rxe0, the cable, two namespaces, Debian's dtest. Cases that stop the guest are omitted where
# the lab is native.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export DAT_LAB_TIMEOUT=${DAT_LAB_TIMEOUT:-300}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0 passed=0

lab() { "$here/run.sh" "$@" >"$tmp/stdout" 2>"$tmp/stderr"; echo $? >"$tmp/status"; }

# check TEXT TEST...: runs a test command; prints the lab's output if it fails.
check() {
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok      $what"
        # A repeated boot is no failure, but must be reported.
        grep -q 'did not come up' "$tmp/stderr" && [ -z "${stuck:-}" ] && sed 's/^/        /' "$tmp/stderr"
    else
        failed=$((failed + 1))
        echo "FAILED  $what (status $(cat "$tmp/status")); stdout, stderr:"
        head -c 2000 "$tmp/stdout" | sed 's/^/        /'
        tail -n 200 "$tmp/stderr" | sed 's/^/        /'
    fi
}
status_is() { [ "$(cat "$tmp/status")" = "$1" ]; }
stdout_has() { grep -q -- "$1" "$tmp/stdout"; }
stderr_has() { grep -q -- "$1" "$tmp/stderr"; }

# In the guest: waits until a command succeeds, half a minute at most; for servers to listen.
await='await() { for _ in $(seq 300); do "$@" && return; sleep 0.1; done; echo "in vain: $*" >&2; return 1; }
    pingpong_listens() { cat /proc/net/tcp /proc/net/tcp6 | grep -q ":4853 0*:0000 0A"; }
    rping_listens() { rdma resource show cm_id | grep -q "state LISTEN"; }
    '

case_output() {
    # Bytes of every value, an incomplete last line, the folder, the arguments and the environment.
    head -c 300000 /dev/urandom >"$tmp/bytes"
    (
        cd "$here" || exit
        LAB_WORD="two words" lab -- bash -c 'cat "$1"; printf "%s|%s|%s" "$PWD" "$LAB_WORD" "$2" >&2; exit 7' bash "$tmp/bytes" "a 'b"
    )
    check "exit status 7 comes back" status_is 7
    check "300,000 random bytes of stdout come back" cmp -s "$tmp/bytes" "$tmp/stdout"
    check "folder, environment, arguments and stderr come through" stderr_has "^$here|two words|a 'b\$"
}

case_rxe() {
    lab --sh "$await"'set -e
        ibv_devices
        test "$(ulimit -l)" = unlimited
        touch "$DAT_LAB_OUT/x" /tmp/x
        ibv_rc_pingpong -d rxe0 -g 1 -n 50 >/dev/null & await pingpong_listens
        ibv_rc_pingpong -d rxe0 -g 1 -n 50 10.9.0.1
        wait $!
        rping -s -a 10.9.0.1 -C 20 & await rping_listens
        rping -c -a 10.9.0.1 -C 20 -V
        wait $!
        echo "rping ok"'
    check "exit status 0 comes back" status_is 0
    check "rxe0 is a verbs device" stdout_has rxe0
    check "two processes exchange messages over verbs" stdout_has "50 iters in"
    check "two processes connect with the RDMA CM and validate data" stdout_has "rping ok"
}

case_two() {
    lab --two --mtu 4200 --sh "$await"'set -e
        before=$(cat /sys/class/net/v1/statistics/rx_packets)
        ibv_rc_pingpong -d rxe1 -g 1 -m 4096 -n 50 >/dev/null & await pingpong_listens
        ibv_rc_pingpong -d rxe0 -g 1 -m 4096 -n 50 10.9.0.1
        wait $!
        after=$(cat /sys/class/net/v1/statistics/rx_packets)
        [ $((after - before)) -gt 100 ] && echo "through the cable"'
    check "rxe0 and rxe1 talk at a path MTU of 4096" status_is 0
    check "their packets pass the cable" stdout_has "through the cable"
}

case_netns() {
    lab --no-rxe --netns --setup 'tc qdisc add dev v0 root netem delay 1ms' --sh '
        tc qdisc show dev v0
        echo "links: $(rdma link | wc -l)"
        ip netns exec peer python3 -c "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((\"10.9.0.2\", 4791)); s.settimeout(20)
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); c.sendto(b\"x\", (\"10.9.0.2\", 4791))
print(\"port 4791 of the peer got\", s.recv(9))"'
    check "a command in the peer namespace ends well" status_is 0
    check "without --rxe there is no rxe device" stdout_has "links: 0"
    check "netem is there" stdout_has netem
    check "UDP port 4791 of the peer is free" stdout_has "got b'x'"
}

# Another kernel than this Debian's, of the suite $DAT_LAB_KERNEL or sid.
case_kernel() {
    lab --kernel "${DAT_LAB_KERNEL:-sid}" --sh "$await"'set -e
        uname -r
        rping -s -a 10.9.0.1 -C 20 & await rping_listens
        rping -c -a 10.9.0.1 -C 20 -V
        wait $!
        echo "rping ok"'
    check "another kernel boots" eval 'status_is 0 && ! stdout_has "^6\.1\."'
    check "two processes exchange data on its rdma_rxe" stdout_has "rping ok"
}

# A rdma_rxe device in each of two namespaces: data goes over the cable, in both directions.
case_namespaces() {
    lab --two --netns -- true
    check "a kernel whose rdma_rxe has one port says so" eval 'status_is 125 && stderr_has "initial namespace only"'
    lab --kernel "${DAT_LAB_KERNEL:-sid}" --two --netns --sh "$await"'set -e
        rdma link | grep "rxe0.*netdev v0"
        ip netns exec peer rdma link | grep "rxe1.*netdev v1"
        before=$(cat /sys/class/net/v0/statistics/tx_packets)
        ip netns exec peer rping -s -a 10.9.0.2 -C 20 & await rping_listens
        rping -c -a 10.9.0.2 -C 20 -V
        wait $!
        rping -s -a 10.9.0.1 -C 20 & await rping_listens
        ip netns exec peer rping -c -a 10.9.0.1 -C 20 -V
        wait $!
        after=$(cat /sys/class/net/v0/statistics/tx_packets)
        [ $((after - before)) -gt 100 ] && echo "through the cable"'
    check "devices in two namespaces exchange data both ways" status_is 0
    check "their packets pass the cable" stdout_has "through the cable"
}

case_dtest() {
    lab --sh "$await"'set -e
        echo "ofa u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"v0 0\" \"\"" >/tmp/dat.conf
        export DAT_OVERRIDE=/tmp/dat.conf
        stdbuf -oL dtest -P ofa -s -b 4096 >/tmp/server & await grep -q "Server is waiting" /tmp/server
        dtest -P ofa -h 10.9.0.1 -b 4096
        wait $!; cat /tmp/server'
    check "Debian's dtest passes over Debian's libdaplofa, both sides" test "$(grep -c PASSED "$tmp/stdout")" = 2
}

# A machine that can make rxe devices itself: the guest is one, once its own network is gone.
case_native() {
    lab --sh "rdma link del rxe0 && ip link del v0 && unset DAT_LAB_PLACE DAT_LAB
        '$here/run.sh' --two --sh 'echo \$DAT_LAB_PLACE; ibv_devices | grep -c rxe; exit 7' ; echo status \$?
        '$here/run.sh' --timeout 2 -- sleep 100; echo hung \$?
        ip rule | head -n 1; ip link show v0 || echo nothing left"
    check "a machine with rdma_rxe runs the command natively" stdout_has native
    check "its devices and status are there" eval "stdout_has '^2\$' && stdout_has 'status 7'"
    check "a hung command fails there too" stdout_has "hung 124"
    check "nothing of the lab stays on the machine" eval "stdout_has '0:.*lookup local' && stdout_has 'nothing left'"
}

case_hung() {
    lab --timeout 50 --sh 'echo begun; exec -a a-hung-command sleep 1000'
    check "a command that does not end fails" status_is 124
    check "its output until then comes back" stdout_has begun
    check "the report names what hung" stderr_has a-hung-command
}

case_dead() {
    lab --sh 'echo begun; sleep 1; echo o >/proc/sysrq-trigger; sleep 100'
    check "a guest that powers off early fails" status_is 125
    check "the report says so" stderr_has "guest died"
    lab --sh 'echo c >/proc/sysrq-trigger; sleep 100'
    check "a guest that panics fails" status_is 125
    check "the report shows the panic" stderr_has "Kernel panic"
}

# A guest stuck on its way to the command is started again, and says where it hung.
case_stuck() {
    local stuck=yes
    export DAT_LAB_BOOT=30
    lab --setup 'seen=${0%/*}/seen; [ -e "$seen" ] || { touch "$seen"; sleep 1001; }' --sh 'echo here'
    check "a guest that does not come up is started again" eval "status_is 0 && stdout_has '^here$'"
    check "that is not hidden" stderr_has "did not come up (boot 1 of 3"
    check "the report names what hung" eval "stderr_has 'at .* s: --setup commands' && stderr_has 'task:sleep'"
    lab --setup 'seen=${0%/*}/seen; [ -e "$seen" ] || { touch "$seen"; echo c >/proc/sysrq-trigger; }' --sh 'echo here'
    check "a guest that dies before its command begins is started again" eval "status_is 0 && stdout_has '^here$'"
    check "that is not hidden either" eval "stderr_has 'did not come up (boot 1 of 3' && stderr_has 'Kernel panic'"
    DAT_LAB_BOOT=4 lab --setup 'sleep 1001' -- true
    check "one that never comes up fails" eval "status_is 125 && stderr_has 'never began'"
    unset DAT_LAB_BOOT
}

# Time without a processor does not count against a limit.
case_limit() {
    . "$here/lib/limit.sh"
    mkdir -p "$tmp/proc/7/task/7" "$tmp/proc/7/task/8"
    echo "9000000000 1000000000 5" >"$tmp/proc/7/task/7/schedstat"
    echo "9000000000 40000000000 5" >"$tmp/proc/7/task/8/schedstat"
    : >"$tmp/stdout"
    : >"$tmp/stderr"
    echo 0 >"$tmp/status"
    check "the thread that waited longest for a processor counts" test "$(DAT_LAB_PROC=$tmp/proc starved 7)" = 40
    check "the time of an idle host counts in full" test "$(own_time 50 0)" = 50
    check "time without a processor does not count" test "$(own_time 100 40)" = 60
    check "a limit ends on any host" test "$(own_time 300 299)" = 100
    sleep 1000 &
    check "a limit of a process that waits for nothing but time comes" until_own_time $! $SECONDS 2
    kill $!
    wait $! 2>/dev/null
    check "the limit of a process that ended does not come" eval "! until_own_time $! $SECONDS 2"
}

case_broken() {
    lab --setup 'false' -- true
    check "a --setup that fails is no success of the command" status_is 125
}

case_clock() {
    DAT_LAB_CLOCK=sundial lab -- true
    check "a clock there is not is named" eval "status_is 125 && stderr_has sundial"
    # The same work takes the same time, whatever else the machine does.
    DAT_LAB_CLOCK=instructions lab --no-rxe --sh 'nproc
        work() { local i from=${EPOCHREALTIME/./}; for ((i = 0; i < 20000; i++)); do :; done; echo $((${EPOCHREALTIME/./} - from)); }
        work >/dev/null; first=$(work) second=$(work)
        echo "$first $second"; [ $((first * 10)) -lt $((second * 11)) ] && [ $((second * 10)) -lt $((first * 11)) ]'
    check "a clock of instructions repeats within a tenth, on one processor" eval "status_is 0 && stdout_has '^1\$'"
}

case_parallel() {
    local i pids=()
    for i in 1 2; do
        "$here/run.sh" --sh "echo guest $i; ibv_devices | grep -c rxe0; exit $i" >"$tmp/parallel.$i" 2>&1 &
        pids+=($!)
    done
    for i in 1 2; do
        wait "${pids[i - 1]}"
        echo $? >"$tmp/status"
        cp "$tmp/parallel.$i" "$tmp/stdout"
        check "of two labs at once, number $i gives its own result" eval "status_is $i && stdout_has 'guest $i'"
    done
}

cases="$*"
if [ -z "$cases" ] || [ "$cases" = --failures ]; then
    [ "$cases" = --failures ] && cases="limit output broken hung" || cases="limit output rxe two netns dtest broken parallel hung"
    place=$(. "$here/lib/place.sh"; say() { echo "$*" >&2; }; lab_place)
    # Natively this machine would be the one that dies.
    [ "$place" = qemu ] && cases="$cases native dead stuck clock"
fi
for one in $cases; do
    "case_$one"
done
echo "lab self-test: $passed passed, $failed failed"
[ $failed = 0 ]
