#!/bin/bash
# Second stage of the guest: kernel, network, then the command. What it writes to run/{stdout,stderr,status} is the run's result;
# without run/status the host calls the run a failure. Its own chatter goes to the console, which the host keeps as a log.
run=$1
. "$run/config"
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd / || exit

# The console's last line of a guest that hangs says where.
at() { echo "lab: at $(cut -d ' ' -f 1 /proc/uptime) s: $*"; }

power_off() {
    sync
    echo o >/proc/sysrq-trigger
    sleep 60
}

# A guest that cannot be set up must not look like one whose command failed.
give_up() {
    echo "lab: $*"
    echo "$*" >"$run/broken"
    power_off
}

at "first files"
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
ln -sf /proc/self/fd /dev/fd
ln -sf /proc/self/fd/0 /dev/stdin
ln -sf /proc/self/fd/1 /dev/stdout
ln -sf /proc/self/fd/2 /dev/stderr

# Programs that look up their own host name get an address that RDMA can use.
hostname lab
printf '127.0.0.1 localhost\n::1 localhost\n10.9.0.1 lab\n10.9.0.2 peer\n' >/run/hosts
touch /etc/hosts && mount --bind /run/hosts /etc/hosts
# The guest's modules, where modprobe and the kernel itself look for them.
mkdir -p "/lib/modules/$kernel" && mount --bind "$modules/lib/modules/$kernel" "/lib/modules/$kernel"

. "$run/network.sh"
at "modules"
lab_modules || give_up "the RDMA modules do not load"
at "network"
lab_network || give_up "the guest's network could not be set up"
if [ -s "$run/setup" ]; then
    at "--setup commands"
    bash -e "$run/setup" || give_up "the --setup commands failed"
fi

ulimit -l unlimited
ulimit -n 65536
ulimit -c 0

if [ "$interactive" = yes ]; then
    . "$run/environment" 2>/dev/null
    cd "$directory" 2>/dev/null
    [ -n "$terminal_size" ] && stty $terminal_size </dev/ttyS0
    setsid -c bash -i </dev/ttyS0 >/dev/ttyS0 2>&1
    echo $? >"$run/status"
    power_off
fi

at "the command"
touch "$run/begun" || give_up "the run's folder takes no files"
# The host keeps the time. The guest gives up a little before its host stops it, because only it can say what hangs.
(
    until [ -e "$run/time-up" ]; do sleep 2; done
    {
        echo "lab: the command still runs after $(cut -d . -f 1 /proc/uptime) s of uptime; processes of the guest:"
        ps -eo pid,ppid,stat,wchan:28,time,args --cols 200 | grep -v '\]$'
    } >"$run/hung"
    echo timeout >"$run/status"
    power_off
) &

(
    . "$run/environment" 2>/dev/null
    cd "$directory" || exit 126
    exec bash "$run/command" </dev/null >>"$run/stdout" 2>>"$run/stderr"
)
echo $? >"$run/status.part"
mv "$run/status.part" "$run/status"
power_off
