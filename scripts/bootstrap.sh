#!/bin/bash
# Installs the Debian packages that building and testing need, and nothing when all are there (then it takes milliseconds).
#
# usage: bootstrap.sh [build] [lab] [test] [bench]      default: build lab test
#
# A machine with rust and apt-get is enough to start from. As root it installs; otherwise it prints the command
# to run and fails. DAT_BOOTSTRAP=skip trusts the machine as it is (other distributions).
set -euo pipefail

# rdma-sys generates its bindings with libclang from the verbs headers.
build=(gcc libc6-dev make pkg-config python3 libibverbs-dev librdmacm-dev libclang-dev)
# A guest with real rdma_rxe: emulator, kernel modules, initramfs, network; and the verbs tools its self-test uses.
lab=(qemu-system-x86 kmod busybox-static cpio iproute2 ibverbs-providers ibverbs-utils rdmacm-utils)
# The clients and the original library we are compared with; perftest and rping for interoperation; decoders and checkers; headers are
# tried in C++ as well.
test=(libdapl2 libdapl-dev dapl2-utils perftest tshark tcpdump valgrind procps g++)
# What `make bench` runs beside us.
bench=(iperf3 libfabric-bin ucx-utils)
# Runs the tests; built where the machine's rust comes without, which takes some minutes, once.
nextest=0.9.143

[ "${DAT_BOOTSTRAP:-}" = skip ] && exit 0

wanted=()
for group in "${@:-build lab test}"; do
    for g in $group; do
        case $g in
            build | lab | test | bench) declare -n packages=$g; wanted+=("${packages[@]}") ;;
            *) echo "bootstrap: no group '$g'; there are: build lab test bench" >&2; exit 2 ;;
        esac
    done
done

if ! command -v dpkg-query >/dev/null; then
    echo "bootstrap: not a Debian system. Install what these packages hold, then set DAT_BOOTSTRAP=skip: ${wanted[*]}" >&2
    exit 1
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/^installed //p' || true)
missing=()
for package in "${wanted[@]}"; do
    grep -qx -- "$package" <<<"$installed" || missing+=("$package")
done

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "bootstrap: packages are missing. Run as root:" >&2
        echo "    apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    echo "bootstrap: installing ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    {
        # One installer at a time: guests started together would otherwise race for dpkg's lock.
        flock 9
        apt-get -q update
        apt-get -q install -y --no-install-recommends "${missing[@]}"
    } 9>/tmp/dat-bootstrap.lock >&2
fi

if [[ " ${*:-test} " == *" test "* ]] && ! command -v cargo-nextest >/dev/null; then
    echo "bootstrap: building cargo-nextest $nextest" >&2
    cargo install --quiet --locked "cargo-nextest@$nextest" >&2
fi
