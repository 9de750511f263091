#!/bin/bash
# Runs a command where RDMA is: on this machine if it has an RDMA device or can make one, else in a QEMU guest with the stock Debian
# kernel and real rdma_rxe. See docs/lab.md.
set -uo pipefail

usage() {
    cat >&2 <<'END'
usage: run.sh [options] [--] COMMAND [ARG]...     run a program with its arguments
       run.sh [options] --sh "SHELL COMMANDS" [ARG0 ARG]...     run a line of bash
       run.sh [options] --shell                   an interactive shell in the guest

  --no-rxe          load rdma_rxe but create no rxe device
  --siw             instead of rxe0, siw0 on v0: iWARP over TCP (software). The module is built once; docs/lab.md
  --two             rxe0 on v0 and rxe1 on v1, talking through the cable between them (netem, captures)
  --netns           put v1 (10.9.0.2) into the network namespace `peer`: `ip netns exec peer CMD`; UDP port 4791 is free there.
                    With --two, rxe1 is there: needs --kernel sid
  --kernel NAME     another kernel than this Debian's: a suite of Debian (bookworm-backports, trixie, sid) or a package
                    linux-image-VERSION                                                  (default $DAT_LAB_KERNEL or none)
  --mtu N           MTU of v0 and v1: 1500 gives an RDMA path MTU of 1024, 4200 gives 4096         (default 1500)
  --setup 'CMDS'    bash commands to run as root before the command; they must succeed
  --timeout S       seconds for everything, the boot included; time in which the guest has no processor of a busy host does not
                    count, up to three times the limit                            (default $DAT_LAB_TIMEOUT or 300)
  --mem M           the guest's memory in MiB                                         (default $DAT_LAB_MEM or 3072)
  --log FILE        keep the guest's console there
  --out DIR         copy what the command left in $DAT_LAB_OUT to DIR

Exit status: the command's own; 124 when the time was up; 125 when the guest died or could not be set up.
Environment: DAT_LAB=native|qemu forces the place, DAT_LAB_CACHE the cache (default .cache/lab), DAT_LAB_BOOT the seconds after which a
guest whose command has not begun is started again (90).
END
    exit 2
}

say() { echo "lab: $*" >&2; }

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cache=${DAT_LAB_CACHE:-$top/.cache/lab}
timeout=${DAT_LAB_TIMEOUT:-300}
mem=${DAT_LAB_MEM:-3072}
wanted_kernel=${DAT_LAB_KERNEL:-}
rxe=one siw=no mtu=1500 netns=no setup='' log='' out='' line='' interactive=no

while [ $# -gt 0 ]; do
    case $1 in
        --no-rxe) rxe=none ;;
        --siw) rxe=none siw=yes ;;
        --two) rxe=two ;;
        --netns) netns=yes ;;
        --kernel | --mtu | --setup | --timeout | --mem | --log | --out | --sh)
            [ $# -ge 2 ] || { say "$1 needs a value"; usage; }
            case $1 in
                --kernel) wanted_kernel=$2 ;;
                --mtu) mtu=$2 ;;
                --setup) setup=$2 ;;
                --timeout) timeout=$2 ;;
                --mem) mem=$2 ;;
                --log) log=$2 ;;
                --out) out=$2 ;;
                --sh) line=$2 ;;
            esac
            shift ;;
        --shell) interactive=yes ;;
        --) shift; break ;;
        -*) say "unknown option $1"; usage ;;
        *) break ;;
    esac
    shift
done
for number in "$timeout" "$mem" "$mtu" "${DAT_LAB_BOOT:-90}"; do
    [[ $number =~ ^[0-9]+$ ]] || { say "'$number' is not a number"; usage; }
done
[[ $wanted_kernel =~ ^[a-z0-9.+-]*$ ]] || { say "'$wanted_kernel' is no suite and no package"; usage; }
[ -n "$line" ] && set -- bash -c "$line" "$@"
[ "$interactive" = yes ] || [ $# -gt 0 ] || usage

. "$here/lib/place.sh"
. "$here/lib/network.sh"
place=$(lab_place) || exit 125
case "${DAT_LAB_CLOCK:-host}" in
host) ;;
instructions)
    [ "$place" = qemu ] || [ "${DAT_LAB_PLACE:-}" = guest ] || {
        say "FAILED: only a guest's clock counts instructions; DAT_LAB=qemu runs in one"
        exit 125
    }
    ;;
*) say "FAILED: DAT_LAB_CLOCK=$DAT_LAB_CLOCK: must be host or instructions" && exit 125 ;;
esac
if [ "$place" = native ]; then
    . "$here/lib/native.sh"
    native_run "$@"
    exit
fi

. "$here/lib/image.sh"
. "$here/lib/limit.sh"
. "$here/lib/qemu.sh"
. "$here/lib/siw.sh"
"$top/scripts/bootstrap.sh" lab || exit 125
image_prepare "$cache" "$here/guest" "$wanted_kernel" || exit 125
[ "$siw" = no ] || siw_prepare "$cache" || exit 125
qemu_run "$@"
