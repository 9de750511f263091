#!/bin/bash
# Builds the whole project for 64-bit ARM on another machine, compares the symbols of the C libraries, and runs unit
# tests and C programs on the user engine under qemu-user.
#
# usage: arm64.sh [check]      check: only that everything compiles
#
# The compiler is rustup's if its target aarch64-unknown-linux-gnu is installed, else Debian's rustc-web, which is
# unpacked below .cache/arm64 and not installed. DAT_ARM64_CACHE changes the folder.
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cache=$(realpath -m "${DAT_ARM64_CACHE:-.cache/arm64}")
triple=aarch64-unknown-linux-gnu

[ "$(uname -m)" != aarch64 ] || { echo "arm64: this machine is 64-bit ARM: run make test" >&2; exit 2; }
scripts/bootstrap.sh arm64

# Lists of the machine's package sources for both processors, and packages, in the cache folder alone: nothing of the
# machine changes.
apt_here() {
    local command=$1
    shift
    "$command" -o Dir::State::Lists="$cache/lists" -o Dir::Cache="$cache/apt" \
        -o APT::Architectures=amd64,arm64 -o APT::Sandbox::User=root "$@"
}

# Unpacks Debian's compiler with the standard libraries of both processors.
fetch_compiler() {
    [ ! -x "$cache/rustc" ] || return 0
    echo "arm64: unpacking Debian's rustc-web into $cache" >&2
    rm -rf "$cache"
    mkdir -p "$cache"/{lists/partial,apt/archives/partial,root}
    apt_here apt-get -q update >&2
    local driver llvm
    driver=$(apt_here apt-cache depends libstd-rust-web-dev | sed -n 's/^  Depends: //p')
    llvm=$(apt_here apt-cache depends "$driver" | sed -n 's/^  Depends: \(libllvm.*\)/\1/p')
    (cd "$cache/apt" && apt_here apt-get -q download rustc-web "$driver" "$llvm" libstd-rust-web-dev:{amd64,arm64} >&2)
    for package in "$cache"/apt/*.deb; do
        dpkg -x "$package" "$cache/root"
    done
    rm -rf "$cache"/{apt,lists}
    local libraries=$cache/root/usr/lib/x86_64-linux-gnu missing
    missing=$(ldd "$libraries"/libLLVM*.so* | sed -n 's/^\t\(.*\) => not found/\1/p' | sort -u)
    [ -z "$missing" ] || { echo "arm64: Debian's compiler lacks $missing" >&2; exit 1; }
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec %s "$@"\n' \
        "$libraries" "$cache/root/usr/bin/rustc" >"$cache/rustc"
    chmod +x "$cache/rustc"
}

if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$triple" ]; then
    fetch_compiler
    export RUSTC=$cache/rustc
fi
export CARGO_BUILD_TARGET=$triple CARGO_TARGET_DIR=$target/arm64 CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
built=$target/arm64/$triple/debug

cargo check --quiet --locked --workspace
echo "arm64: the workspace compiles"
[ "${1:-}" != check ] || exit 0

# Unit tests. qemu-user accepts MADV_POPULATE_WRITE and ignores it, so the tests of ranges that are not mapped are left
# out; and it has no process descriptors of socket peers, which softrxe-port needs. A test that runs itself once more
# has no qemu for that.
cargo test --quiet --locked --lib -p dat-arena -p dat-os -p dat-handshake -p dat-core -p dat-abi -p softrxe-proto -p dat-verbs
cargo test --quiet --locked --lib -p softrxe-engine -- --skip memory::probe:: --skip only_mapped_memory_can_be_registered \
    --skip a_program_without_standard_input_gets_no_descriptor

# Both libraries export the names and versions that they export here.
cargo build --quiet --locked -p dat1 -p dat2 -p dat-loopback-provider -p dat-provider-softrxe -p dat-provider-ibverbs -p dat-provider-filter -p dat-tools
env -u RUSTC -u CARGO_BUILD_TARGET -u CARGO_PROFILE_DEV_DEBUG -u CARGO_INCREMENTAL CARGO_TARGET_DIR="$target" \
    cargo build --quiet --locked -p dat1 -p dat2
# exports LIBRARY: names and versions; GNU ld also writes the name of the version.
exports() { nm -D --with-symbol-versions --defined-only "$1" | awk '$2 != "A" { print $2, $3 }'; }
for library in libdat1.so libdat2.so; do
    diff <(exports "$target/debug/$library") <(exports "$built/$library") ||
        { echo "arm64: $library exports something else than here" >&2; exit 1; }
done

# C programs, on both versions, the example's transport and the user engine. short_arrays is not among them: it needs
# process_vm_readv, which qemu-user lacks.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for link in libdat.so.1=libdat1.so libdat.so=libdat1.so libdat2.so.2=libdat2.so libdat2.so=libdat2.so; do
    ln -s "$built/${link#*=}" "${link%=*}"
done
for api in u1.2 u2.0; do
    echo "loop $api nonthreadsafe default $built/libdat_loopback_provider.so test.1.0 \"127.0.0.1 0\" \"\""
    echo "user $api nonthreadsafe default $built/libdat_provider_softrxe.so test.1.0 \"127.0.9.1 0 engine=user\" \"\""
done >dat.conf
emulated() {
    timeout 300 qemu-aarch64-static -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$work" -E DAT_OVERRIDE="$work/dat.conf" "$@"
}
passed=0
for version in "dat -DUDAPL_1_2" dat2; do
    read -r library define <<<"$version"
    for program in two_endpoints no_objects odd_addresses synopses; do
        aarch64-linux-gnu-gcc -Wall -Wextra -Werror -g ${define:+"$define"} -I "$top/capi/include" "$top/tests/c/$program.c" \
            -o "$program" -L. "-l$library"
        for ia in loop user; do
            emulated "./$program" $ia >"$program.out" 2>"$program.err" ||
                { echo "arm64: $program of $library on $ia failed" >&2; cat "$program.out" "$program.err" >&2; exit 1; }
            passed=$((passed + 1))
        done
    done
done
emulated "$built/dat" --version
echo "arm64: $passed passed, 0 failed"
