# One guest, one command. Sourced by run.sh.

# The newest model whose instructions TCG emulates, without the features it lacks and warns of.
qemu_cpu=Haswell-v4,-pcid,-x2apic,-tsc-deadline,-invpcid,-spec-ctrl

qemu_run() {
    local run qemu tails status guest_timeout
    run=$(mktemp -d "${TMPDIR:-/tmp}/dat-lab.XXXXXX") || return 125
    # The folder of the run is all that two labs at the same time would share; it has a name of its own.
    trap 'kill "${qemu:-}" 2>/dev/null; rm -rf "$run"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    qemu_describe "$run" "$@"

    local accel=tcg,thread=multi processors=(-smp 2)
    # 1 ns an instruction, on one processor: more of them have no common count.
    [ "${DAT_LAB_CLOCK:-host}" = host ] || accel=tcg,thread=single processors=(-smp 1 -icount shift=0)

    local machine=(qemu-system-x86_64 -nodefaults -no-reboot -no-user-config -display none -monitor none
        -accel "${DAT_LAB_ACCEL:-$accel}" -cpu "${DAT_LAB_CPU:-$qemu_cpu}" "${processors[@]}" -m "$mem"
        -virtfs "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap"
        -virtfs "local,path=$run,mount_tag=labrun,security_model=none,multidevs=remap"
        -kernel "$vmlinuz" -initrd "$initramfs"
        # A kernel that oopsed is a dead guest, not one to go on testing with.
        -append "console=ttyS0 panic=-1 oops=panic quiet lab.run=$run")

    if [ "$interactive" = yes ]; then
        "${machine[@]}" -serial stdio 2>"$run/qemu.log"
        qemu_verdict "$run"
        exit
    fi

    "${machine[@]}" -serial "file:$run/console" </dev/null >"$run/qemu.log" 2>&1 &
    qemu=$!
    # Line by line while it runs: someone may be watching, or wait for a line.
    tail -q -c +1 -s 0.1 -f --pid=$qemu "$run/stdout" 2>/dev/null &
    tails=($!)
    tail -q -c +1 -s 0.1 -f --pid=$qemu "$run/stderr" >&2 2>/dev/null &
    tails+=($!)
    (
        # The guest ends itself a little earlier and says why; this is for one that cannot.
        sleep "$timeout" && touch "$run/late" && kill -9 $qemu
    ) >/dev/null 2>&1 &
    local watchdog=$!
    wait $qemu 2>/dev/null
    qemu=
    pkill -P $watchdog 2>/dev/null
    kill $watchdog 2>/dev/null
    wait "${tails[@]}" 2>/dev/null
    [ -n "$log" ] && cat "$run/console" "$run/qemu.log" >"$log"
    [ -n "$out" ] && mkdir -p "$out" && cp -r "$run/out/." "$out/"
    qemu_verdict "$run"
    exit
}

# Everything the guest must know, as files that its shell sources.
qemu_describe() {
    local run=$1
    shift
    # Time for the boot and for a last word; a short limit gets a short last word.
    guest_timeout=$((timeout > 30 ? timeout - 15 : timeout / 2))
    {
        printf '%s=%q\n' modules "$modules" kernel "$kernel" rxe "$rxe" mtu "$mtu" netns "$netns" directory "$PWD" \
            interactive "$interactive" guest_timeout "$guest_timeout"
        [ -t 0 ] && printf 'terminal_size=%q\n' "$(stty size | awk '{ print "rows " $1 " cols " $2 }')"
    } >"$run/config"
    (
        export DAT_LAB_PLACE=guest DAT_LAB_OUT=$run/out
        export -p
    ) >"$run/environment"
    [ $# -gt 0 ] && printf 'exec' >"$run/command" && printf ' %q' "$@" >>"$run/command"
    printf '%s\n' "$setup" >"$run/setup"
    [ -n "$setup" ] || : >"$run/setup"
    cp "$here/guest/main.sh" "$here/lib/network.sh" "$run/"
    mkdir "$run/out"
    : >"$run/stdout"
    : >"$run/stderr"
}

# Only the guest's own marker says that the command ran to its end.
qemu_verdict() {
    local run=$1 status
    status=$(cat "$run/status" 2>/dev/null)
    if [ -e "$run/broken" ]; then
        say "FAILED: $(cat "$run/broken")"
        qemu_last_words "$run"
        exit 125
    elif [ "$status" = timeout ] || [ -e "$run/late" ]; then
        [ -e "$run/hung" ] && cat "$run/hung" >&2
        [ -e "$run/late" ] && qemu_last_words "$run"
        say "FAILED: no end within $timeout s (--timeout); the guest was stopped"
        exit 124
    elif [[ $status =~ ^[0-9]+$ ]]; then
        exit "$status"
    fi
    say "FAILED: the guest died before the command ended (no exit marker)"
    qemu_last_words "$run"
    exit 125
}

qemu_last_words() {
    say "the console's last lines:"
    # A panic is followed by a long stack dump: show what it was first.
    {
        grep -haE 'BUG:|Oops|Kernel panic' "$1/console"
        tail -qn 20 "$1/qemu.log" "$1/console"
    } 2>/dev/null | sed 's/^/lab:   /' >&2
}
