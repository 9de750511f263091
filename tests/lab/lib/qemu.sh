# One guest, one command. Sourced by run.sh.

# The newest model whose instructions TCG emulates, without the features it lacks and warns of.
qemu_cpu=Haswell-v4,-pcid,-x2apic,-tsc-deadline,-invpcid,-spec-ctrl

# A guest whose command has not begun after this many seconds of its own time is stuck in its boot, and started again.
qemu_boot_limit=${DAT_LAB_BOOT:-90}
qemu_boots=3

qemu_run() {
    local run qemu watchdog begin=$SECONDS boot left=$timeout
    run=$(mktemp -d "${TMPDIR:-/tmp}/dat-lab.XXXXXX") || return 125
    # The folder of the run is all that two labs at the same time would share; it has a name of its own.
    trap 'kill ${qemu:-} ${watchdog:-} 2>/dev/null; rm -rf "$run"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    qemu_describe "$run" "$@"

    local accel=tcg,thread=multi processors=(-smp 2)
    # 1 ns an instruction, on one processor: more of them have no common count.
    [ "${DAT_LAB_CLOCK:-host}" = host ] || accel=tcg,thread=single processors=(-smp 1 -icount shift=0)

    local machine=(qemu-system-x86_64 -nodefaults -no-reboot -no-user-config -display none
        -accel "${DAT_LAB_ACCEL:-$accel}" -cpu "${DAT_LAB_CPU:-$qemu_cpu}" "${processors[@]}" -m "$mem"
        -virtfs "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap"
        -virtfs "local,path=$run,mount_tag=labrun,security_model=none,multidevs=remap"
        -kernel "$vmlinuz" -initrd "$initramfs"
        # A kernel that oopsed is a dead guest, not one to go on testing with. One that is asked by NMI where it hangs tells all it
        # knows of its tasks and processors.
        # The kernel's check of its timer counts interrupts, which are too few if the host is busy.
        # The mitigations guard against a processor that speculates, which TCG does not; page-table isolation alone takes a quarter of a
        # client's time here, as each system call discards translations of addresses.
        -append "console=ttyS0 no_timer_check panic=-1 oops=panic unknown_nmi_panic panic_print=0x41 quiet mitigations=off lab.run=$run")

    if [ "$interactive" = yes ]; then
        "${machine[@]}" -monitor none -serial stdio 2>"$run/qemu.log"
        qemu_verdict "$run"
        exit
    fi

    mkfifo "$run/monitor.in" "$run/monitor.out"
    machine+=(-chardev "pipe,id=monitor,path=$run/monitor" -mon monitor -serial "file:$run/console")
    for ((boot = 1; boot <= qemu_boots; boot++)); do
        qemu_boot
        # A guest that died before its command began is one that did not come up, unless it said why.
        [ -e "$run/begun" ] || [ -e "$run/broken" ] || [ -e "$run/stuck" ] || touch "$run/stuck" "$run/died"
        [ -e "$run/stuck" ] || break
        # The command began after all, just before its guest was stopped: it must not begin twice.
        [ -e "$run/begun" ] && break
        # Nothing of the command has happened yet: a second boot repeats nothing, and hides nothing that is said here.
        say "the guest did not come up (boot $boot of $qemu_boots, $((SECONDS - begin)) s since the first began)"
        if [ -e "$run/died" ]; then
            qemu_last_words "$run"
        else
            qemu_stuck_words "$run"
            left=$((left - qemu_boot_limit))
        fi
        [ $left -gt 0 ] && [ "$boot" -lt $qemu_boots ] || break
        rm -f "$run/stuck" "$run/died"
    done
    [ -n "$log" ] && cat "$run/console" "$run/qemu.log" >"$log"
    [ -n "$out" ] && mkdir -p "$out" && cp -r "$run/out/." "$out/"
    qemu_verdict "$run"
    exit
}

# One boot, to the end of the guest. Works on the variables of qemu_run.
qemu_boot() {
    local tails started=$SECONDS
    "${machine[@]}" </dev/null >"$run/qemu.log" 2>&1 &
    qemu=$!
    # Line by line while it runs: someone may be watching, or wait for a line.
    tail -q -c +1 -s 0.1 -f --pid=$qemu "$run/stdout" 2>/dev/null &
    tails=($!)
    tail -q -c +1 -s 0.1 -f --pid=$qemu "$run/stderr" >&2 2>/dev/null &
    tails+=($!)
    (
        until_own_time $qemu $started $((qemu_boot_limit < left ? qemu_boot_limit : left)) || exit
        if [ ! -e "$run/begun" ]; then
            touch "$run/stuck" || exit
            qemu_ask "$run"
            kill -9 $qemu
            exit
        fi
        # The guest gets time for a last word, since only it can say what hangs; a short limit gets a short last word.
        until_own_time $qemu $started $((left > 30 ? left - 15 : left / 2)) || exit
        touch "$run/time-up" || exit
        # On a busy host the list of its processes takes long; a guest that answers ends by itself.
        until_own_time $qemu $started $((left + 45)) || exit
        touch "$run/late" || exit
        qemu_ask "$run"
        kill -9 $qemu
    ) >/dev/null 2>&1 &
    watchdog=$!
    wait $qemu 2>/dev/null
    qemu=
    pkill -P $watchdog 2>/dev/null
    kill $watchdog 2>/dev/null
    watchdog=
    wait "${tails[@]}" 2>/dev/null
}

# Has a guest that does not speak any more tell where it is: what its processors do goes to qemu.log, then an NMI makes its kernel panic
# with the stacks of all tasks, on the console.
qemu_ask() {
    local run=$1
    stat -c %s "$run/console" >"$run/console.asked"
    timeout 3 cat "$run/monitor.out" | grep -aE '^(CPU#|RIP|EIP|CR0)|VM status' >>"$run/qemu.log" &
    # Opened for reading too: an open for writing alone blocks until there is a reader.
    timeout 3 bash -c 'printf "info status\ninfo registers -a\n" 1<>"$1"' ask "$run/monitor.in"
    wait $!
    timeout 3 bash -c 'printf "nmi\n" 1<>"$1"' ask "$run/monitor.in"
    # Killed when the guest is through with its panic.
    sleep 10 || exit
}

# Everything the guest must know, as files that its shell sources.
qemu_describe() {
    local run=$1
    shift
    {
        printf '%s=%q\n' modules "$modules" kernel "$kernel" rxe "$rxe" siw "$siw" mtu "$mtu" netns "$netns" directory "$PWD" \
            interactive "$interactive"
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
    elif [ -e "$run/stuck" ] && [ ! -e "$run/begun" ]; then
        say "FAILED: the guest does not come up; the command never began"
        exit 125
    elif [[ $status =~ ^[0-9]+$ ]]; then
        { [ -e "$run/late" ] || [ -e "$run/stuck" ]; } && say "the command ended, the guest did not: it was stopped"
        exit "$status"
    elif [ -e "$run/stuck" ]; then
        qemu_stuck_words "$run"
        say "FAILED: the guest came up after $qemu_boot_limit s of its own time (DAT_LAB_BOOT), when it was being stopped; the command began and did not end"
        exit 125
    elif [ "$status" = timeout ] || [ -e "$run/late" ]; then
        [ -e "$run/hung" ] && cat "$run/hung" >&2
        [ -e "$run/late" ] && qemu_stuck_words "$run"
        say "FAILED: no end within $timeout s of the guest's own time (--timeout; $((SECONDS - begin)) s on the clock); it was stopped"
        exit 124
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

# What a guest that was asked where it hangs said before and after.
qemu_stuck_words() {
    local run=$1 asked
    asked=$(cat "$run/console.asked" 2>/dev/null)
    {
        cat "$run/qemu.log"
        head -c "${asked:-0}" "$run/console" | tail -n 20
        # Of the tasks those that are processes, and what of the kernel's own waits for a disk or a lock.
        tail -c "+$((${asked:-0} + 1))" "$run/console" | tr -d '\r' | sed -E 's/^\[ *[0-9.]+\] //' |
            awk '/^task:/ { shown = $0 !~ /ppid:[02] / || / pid:1 / || /state:D/ }
                /^(Sched Debug|Showing all locks|Rebooting)/ { shown = 0 }
                /^(NMI backtrace|CPU:|RIP: 0010)/ { print; next }
                shown && !/^ *\?|^R[A-Z0-9]+: |<.?TASK>|Call Trace/' | head -n 150
    } 2>/dev/null | sed 's/^/lab:   /' >&2
}
