#!/bin/bash
# Installs the Debian packages that building and testing need; does nothing (in milliseconds) when all are installed.
#
# usage: bootstrap.sh [build] [lab] [siw] [test] [bench] [bindings] [arm64] [s390x] [powerpc64le] [packages]      default: build lab test
#
# A machine needs Rust (the group build says how to get it) and apt-get. As root the script installs; otherwise it prints the command to run and fails.
# DAT_BOOTSTRAP=skip does nothing, for other distributions.
set -euo pipefail

build=(gcc libc6-dev make python3)
# For a guest with real rdma_rxe: emulator, kernel modules, initramfs, network; and the verbs tools of its self-test.
lab=(qemu-system-x86 kmod busybox-static cpio xz-utils iproute2 ibverbs-providers ibverbs-utils rdmacm-utils)
# Compiles a kernel module for the guest: what Debian's kernel build tools and headers are used with.
siw=(gcc-12 libc6-dev make binutils libelf1 xz-utils)
# The clients and the original library for comparison; perftest and rping for interoperation; decoders and checkers; a
# C++ compiler for the headers; groff for the manual pages.
test=(libdapl2 libdapl-dev dapl2-utils perftest tshark tcpdump valgrind procps g++ pkg-config groff-base)
# Tools that `make bench` compares with, and the headers for those of its own in C.
bench=(iperf3 libfabric-bin ucx-utils libibverbs-dev librdmacm-dev)
# A compiler and a C library for 64-bit ARM, its emulator, and what Debian's rustc-web is linked with, for scripts/ports.sh.
arm64=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static debian-archive-keyring libedit2 libxml2 libz3-4)
# The same for other processors, with a C++ compiler and DAPL's headers for the test of ours.
s390x=(g++-s390x-linux-gnu libc6-dev-s390x-cross qemu-user-static libdapl-dev)
powerpc64le=(g++-powerpc64le-linux-gnu libc6-dev-ppc64el-cross qemu-user-static libdapl-dev)
# rdma-sys generates bindings from the headers with libclang, for scripts/bindings.sh.
bindings=(pkg-config libibverbs-dev librdmacm-dev libclang-dev)
# rpmbuild, for scripts/packages.sh.
packages=(rpm)
# Test runner; built once where the machine's rust comes without it, which takes some minutes.
nextest=0.9.143

[ "${DAT_BOOTSTRAP:-}" = skip ] && exit 0

wanted=()
for group in "${@:-build lab test}"; do
    for g in $group; do
        case $g in
            build | lab | siw | test | bench | bindings | arm64 | s390x | powerpc64le | packages) declare -n group_packages=$g; wanted+=("${group_packages[@]}") ;;
            *) echo "bootstrap: no group '$g'; there are: build lab siw test bench bindings arm64 s390x powerpc64le packages" >&2; exit 2 ;;
        esac
    done
done

# Debian's own compiler is too old, so it comes from elsewhere. `cargo` is asked as well: a distribution may have them apart.
rust_is_new_enough() {
    local found
    command -v cargo >/dev/null || { echo "cargo is not installed"; return 1; }
    found=$(rustc --version 2>/dev/null | cut -d ' ' -f 2)
    [ -n "$found" ] || { echo "rustc is not installed, or does not run"; return 1; }
    printf '%s\n' "$oldest" "$found" | sort -CV || { echo "this is rustc $found ($(command -v rustc))"; return 1; }
}
if [[ " ${*:-build} " == *" build "* ]]; then
    oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
    reason=$(rust_is_new_enough) || {
        echo "bootstrap: Rust $oldest or newer is needed, and $reason. Install it, as any user, and add it to PATH:" >&2
        echo "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . ~/.cargo/env" >&2
        exit 1
    }
fi

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
