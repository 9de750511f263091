# Limits of a guest, in seconds of its own time: the time in which it waits for a processor of a busy host does not
# count. Sourced by qemu.sh.

# starved PID: prints how many seconds the process was ready to run and had no processor: its worst thread's figure in
# schedstat. $DAT_LAB_PROC replaces /proc in tests.
starved() {
    cat "${DAT_LAB_PROC:-/proc}/$1"/task/*/schedstat 2>/dev/null |
        awk '$2 > worst { worst = $2 } END { printf "%d\n", worst / 1e9 }'
}

# own_time WAITED STARVED: prints the seconds that count: a third of those on the clock at least, so each limit ends.
own_time() {
    local own=$(($1 - $2))
    [ $own -ge $(($1 / 3)) ] || own=$(($1 / 3))
    echo $own
}

# until_own_time PID BEGIN LIMIT: returns when the process, which began at $SECONDS = BEGIN, has used LIMIT seconds of
# its own time. Fails when the process has ended.
until_own_time() {
    while [ "$(own_time $((SECONDS - $2)) "$(starved "$1")")" -lt "$3" ]; do
        sleep 1
        kill -0 "$1" 2>/dev/null || return
    done
}
