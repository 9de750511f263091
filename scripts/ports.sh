#!/bin/bash
# Builds the whole project for another processor, compares the symbols of the C libraries and the layouts of the C headers, and runs
# tests and C programs on the user engine under qemu-user. It also connects two processes, and, but for arm64, one of the other
# processor with one of this machine.
#
# usage: ports.sh arm64|s390x|powerpc64le [check]      check: only that everything compiles
#
# The compiler is rustup's, with the target `rustup target add` gives it. For arm64 Debian's rustc-web does as well, which is unpacked
# below .cache/arm64 and not installed. DAT_ARM64_CACHE changes the folder. Power needs Rust 1.95, the first one with its assembly.
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD
port=${1:-}
usage() {
    sed -n 's/^# usage: //p' "$top/scripts/ports.sh" >&2
    exit 2
}
case $port in
    arm64) arch=aarch64 qemu=aarch64 ;;
    s390x) arch=s390x qemu=s390x ;;
    powerpc64le) arch=powerpc64le qemu=ppc64le ;;
    *) usage ;;
esac
[ "${2:-check}" = check ] || usage
triple=$arch-unknown-linux-gnu
sysroot=/usr/$arch-linux-gnu
emulator=(qemu-$qemu-static -L "$sysroot")
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cache=$(realpath -m "${DAT_ARM64_CACHE:-.cache/arm64}")

[ "$(uname -m)" != $qemu ] || { echo "$port: this machine has this processor: run make test" >&2; exit 2; }
scripts/bootstrap.sh "$port"

# Lists of the machine's package sources for both processors, and packages, in the cache folder alone: nothing of the
# machine changes.
apt_here() {
    local command=$1
    shift
    "$command" -o Dir::State::Lists="$cache/lists" -o Dir::Cache="$cache/apt" \
        -o APT::Architectures=amd64,arm64 -o APT::Sandbox::User=root "$@"
}

# Unpacks Debian's compiler with the standard libraries of x86-64 and 64-bit ARM.
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
    [ "$port" = arm64 ] || { echo "$port: rustc lacks its standard library. Run: rustup target add $triple" >&2; exit 2; }
    fetch_compiler
    export RUSTC=$cache/rustc
fi
variable=${triple^^}
variable=CARGO_TARGET_${variable//-/_}
export CARGO_BUILD_TARGET=$triple CARGO_TARGET_DIR=$target/$port CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
export "${variable}_LINKER=$arch-linux-gnu-gcc" "${variable}_RUNNER=${emulator[*]}"
built=$target/$port/$triple/debug

cargo check --quiet --locked --workspace
echo "$port: the workspace compiles"
[ "${2:-}" != check ] || exit 0

# Unit tests. qemu-user accepts MADV_POPULATE_WRITE and ignores it, so the tests of ranges that are not mapped are left
# out; and it has no process descriptors of socket peers, which softrxe-port needs. A test that runs itself once more
# has no qemu for that.
skipped=(--skip memory::probe:: --skip only_mapped_memory_can_be_registered --skip a_program_without_standard_input_gets_no_descriptor)
# Without the assembly that recovers from faults the kernel copies, by process_vm_readv, which qemu-user lacks.
[ "$port" = arm64 ] || skipped+=(--skip memory::range:: --skip payload_references_are_checked_like_copies)
cargo test --quiet --locked --lib -p dat-arena -p dat-os -p dat-handshake -p dat-core -p dat-abi -p softrxe-proto -p dat-verbs
cargo test --quiet --locked --lib -p softrxe-engine -- "${skipped[@]}"
if [ "$port" != arm64 ]; then
    # The wire formats with packets of rdma_rxe, and the protocol between two engines; the channel; configuration files. The layouts of
    # the C headers in Rust and in C, by a compiler for this processor.
    export CC=$arch-linux-gnu-gcc CXX=$arch-linux-gnu-g++ DAT_EMULATOR=${emulator[*]}
    # The test of a library of another machine is left out: below qemu-user libraries are this machine's. Tests that start programs run one
    # by one: a child of a process with busy threads can hang in qemu, on a lock of its own.
    cargo test --quiet --locked --lib -p softrxe-near
    cargo test --quiet --locked --lib -p dat-registry -- --skip a_library_of_another_machine --test-threads=1
    cargo test --quiet --locked -p softrxe-proto --test captures --test connect --test sidr --test pass_on --test transport --test handshake --test near --test replay
    cargo test --quiet --locked -p dat-abi --test headers -- --test-threads=1
    unset CC CXX DAT_EMULATOR
fi

# Both libraries export the names and versions that they export here.
libraries=(-p dat1 -p dat2)
[ "$port" = arm64 ] || libraries+=(-p dat-provider-softrxe)
cargo build --quiet --locked -p dat1 -p dat2 -p dat-loopback-provider -p dat-provider-softrxe -p dat-provider-ibverbs -p dat-provider-filter -p dat-tools
env -u RUSTC -u CARGO_BUILD_TARGET -u CARGO_PROFILE_DEV_DEBUG -u CARGO_INCREMENTAL CARGO_TARGET_DIR="$target" \
    cargo build --quiet --locked "${libraries[@]}"
# exports LIBRARY: names and versions; GNU ld also writes the name of the version.
exports() { nm -D --with-symbol-versions --defined-only "$1" | awk '$2 != "A" { print $2, $3 }'; }
for library in libdat1.so libdat2.so; do
    diff <(exports "$target/debug/$library") <(exports "$built/$library") ||
        { echo "$port: $library exports something else than here" >&2; exit 1; }
done

# C programs, on both versions, the example's transport and the user engine. short_arrays is not among them: it needs
# process_vm_readv, which qemu-user lacks.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# links FOLDER LIBRARIES: the names under which programs load the libraries.
links() {
    mkdir -p "$1"
    for link in libdat.so.1=libdat1.so libdat.so=libdat1.so libdat2.so.2=libdat2.so libdat2.so=libdat2.so; do
        ln -s "$2/${link#*=}" "$1/${link%=*}"
    done
}
links theirs "$built"
for api in u1.2 u2.0; do
    echo "loop $api nonthreadsafe default $built/libdat_loopback_provider.so test.1.0 \"127.0.0.1 0\" \"\""
    echo "user $api nonthreadsafe default $built/libdat_provider_softrxe.so test.1.0 \"127.0.9.1 0 engine=user\" \"\""
done >dat.conf
emulated() {
    timeout 300 "${emulator[@]}" -E LD_LIBRARY_PATH="$work/theirs" -E DAT_OVERRIDE="$work/dat.conf" "$@"
}
passed=0
for version in "dat -DUDAPL_1_2" dat2; do
    read -r library define <<<"$version"
    for program in two_endpoints no_objects odd_addresses synopses; do
        "$arch-linux-gnu-gcc" -Wall -Wextra -Werror -g ${define:+"$define"} -I "$top/capi/include" "$top/tests/c/$program.c" \
            -o "$program" -Ltheirs "-l$library"
        for ia in loop user; do
            emulated "./$program" $ia >"$program.out" 2>"$program.err" ||
                { echo "$port: $program of $library on $ia failed" >&2; cat "$program.out" "$program.err" >&2; exit 1; }
            passed=$((passed + 1))
        done
    done
done
emulated "$built/dat" --version

# Two processes, each as server and as client, over UDP and where shared memory is offered; both on one address, whose port they share, or
# on two. One of them may be of this machine.
links ours "$target/debug"
for where in ours:$target/debug theirs:$built; do
    for near in off auto; do
        for address in 127.0.9.2 127.0.9.3; do
            echo "$near-$address u2.0 nonthreadsafe default ${where#*:}/libdat_provider_softrxe.so test.1.0 \"$address 0 engine=user near=$near\" \"\""
        done
    done >"${where%:*}.conf"
done
cp theirs.conf dat.conf
# preload FILE: compiles what the processes of the other processor load first.
preload() {
    "$arch-linux-gnu-gcc" -Wall -Wextra -Werror -g -shared -fPIC "$top/tests/c/$1" -o preload.so
}
# one_of SIDE ARGUMENTS...: runs byte_orders of a side.
one_of() {
    local side=$1
    shift
    if [ "$side" = ours ]; then
        timeout 300 env LD_LIBRARY_PATH="$work/ours" DAT_OVERRIDE="$work/ours.conf" DAT_LOG=info ./byte_orders.ours "$@"
    else
        emulated -E LD_PRELOAD="$work/preload.so" -E DAT_LOG=info ./byte_orders.theirs "$@"
    fi
}
# pair SERVER CLIENT NEAR ADDRESS: connects a client at ADDRESS with a server at 127.0.9.2.
pair() {
    local server=$1 client=$2 near=$3 address=$4
    # The last server's line would count for this one.
    : >server.out
    one_of "$server" "$near-127.0.9.2" server 4660 >server.out 2>server.err &
    for _ in {1..600}; do
        ! grep -q listening server.out || break
        sleep 0.1
    done
    one_of "$client" "$near-$address" client 4660 127.0.9.2 >client.out 2>client.err && wait $! ||
        pair_failed "$server as server, $client as client, near=$near"
    passed=$((passed + 1))
}
pair_failed() {
    # The server has its address for itself.
    kill $! 2>/dev/null || true
    echo "$port: byte_orders, $1" >&2
    tail -n 50 server.* client.* >&2
    exit 1
}
"$arch-linux-gnu-gcc" -Wall -Wextra -Werror -g -I "$top/capi/include" "$top/tests/c/byte_orders.c" -o byte_orders.theirs -Ltheirs -ldat2
if [ "$port" != s390x ]; then
    # With the largest pages of this processor.
    preload large_pages.c
    pair theirs theirs auto 127.0.9.3
    ! grep 'stay on UDP\|stays on UDP' server.err client.err || pair_failed "no shared memory with pages of 64 KiB"
fi
if [ "$port" != arm64 ]; then
    preload swapped_control.c
    cc -Wall -Wextra -Werror -g -I "$top/capi/include" "$top/tests/c/byte_orders.c" -o byte_orders.ours -Lours -ldat2
    for sides in "ours theirs" "theirs ours" "theirs theirs"; do
        for near in off auto; do
            for address in 127.0.9.2 127.0.9.3; do
                # shellcheck disable=SC2086 # two words
                pair $sides $near $address
                [[ $near = off || $sides != *ours* ]] || grep -q 'another byte order' server.err client.err ||
                    pair_failed "no line says why there is no shared memory"
            done
        done
    done
fi
echo "$port: $passed passed, 0 failed"
