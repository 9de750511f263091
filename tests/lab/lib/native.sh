# The same command on a machine that has RDMA itself. Sourced by run.sh.
#
# As root with rdma_rxe the machine gets the lab's cable and devices for the time of the run; without, the command runs with the
# devices that are there. v0, rxe0 and `peer` are names of the machine, so native labs take turns.

native_run() {
    local status
    export DAT_LAB_PLACE=${DAT_LAB_PLACE:-native}
    if [ "$DAT_LAB_PLACE" = guest ]; then
        # The guest's network stands; a lab inside it is the command alone.
        [ -n "$setup" ] && { bash -e -c "$setup" || { say "FAILED: the --setup commands failed"; return 125; }; }
    elif lab_can_make_device; then
        exec 7>/tmp/dat-lab-native.lock
        flock 7
        [ -e /sys/class/net/v0 ] && { say "FAILED: this machine has an interface v0 already; remove it"; return 125; }
        trap native_undo EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        lab_modules && lab_network || { say "FAILED: the lab's network could not be set up; DAT_LAB=qemu runs in a guest"; return 125; }
        if [ -n "$setup" ]; then
            bash -e -c "$setup" || { say "FAILED: the --setup commands failed"; return 125; }
        fi
    elif [ "$rxe$netns$siw" != onenono ] || [ -n "$setup" ]; then
        say "FAILED: --no-rxe, --siw, --two, --netns and --setup need root and rdma_rxe on this machine; DAT_LAB=qemu runs in a guest"
        return 125
    fi
    ulimit -l unlimited 2>/dev/null
    DAT_LAB_OUT=${out:-$(mktemp -d)}
    export DAT_LAB_OUT
    mkdir -p "$DAT_LAB_OUT"
    if [ "$interactive" = yes ]; then
        bash -i
        return
    fi
    timeout -k 5 "$timeout" "$@" </dev/null
    status=$?
    [ $status = 124 ] && say "FAILED: no end within $timeout s (--timeout)"
    [ -n "$out" ] || rm -rf "$DAT_LAB_OUT"
    return $status
}

native_undo() {
    rdma link del rxe0 2>/dev/null
    rdma link del rxe1 2>/dev/null
    rdma link del siw0 2>/dev/null
    [ "$rxe" = two ] && native_undo_rules
    ip netns del peer 2>/dev/null
    ip link del v0 2>/dev/null
}

# What lab_cable did to the routing rules.
native_undo_rules() {
    local family pref
    for family in -4 -6; do
        ip $family rule | grep -q '^100:' || continue # lab_cable did not come that far
        ip $family rule add pref 0 lookup local
        for pref in 10 11 20 21 30 31 100; do
            ip $family rule del pref $pref
        done
    done
}
