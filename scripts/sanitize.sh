#!/bin/bash
# Checks that normal tests do not make: orders of threads (loom), undefined behaviour (miri), data races
# (ThreadSanitizer) and accesses outside of memory (AddressSanitizer). Prints one line of result for each part; fails
# on any finding, and if a part cannot run. docs/sanitizers.md describes each part.
#
# usage: sanitize.sh [PART]...        parts: loom miri tsan asan udapl, all by default. Loom needs only the stable toolchain;
# the others need nightly:
#        rustup component add miri rust-src --toolchain nightly; tsan and asan need gcc's runtimes libtsan2 and libasan8, and Debian's dapl2-utils
set -uo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
logs=$target/sanitize
mkdir -p "$logs"
export CARGO_TERM_COLOR=never
nightly=${DAT_NIGHTLY:-nightly}
failed=0

# report NAME VERDICT TEXT: prints the line of one part.
report() {
    [ "$2" = ok ] || failed=$((failed + 1))
    echo "sanitize: $1 $2: $3"
}

# missing NAME TEXT: reports a part that this machine cannot run as a failure.
missing() {
    report "$1" MISSING "$2"
}

# counts LOG: prints the number of passed tests in all of cargo's or libtest's runs.
counts() {
    awk '/^test result:/ { passed += $4; bad += $6 } END { printf "%d passed, %d failed", passed, bad }' "$1"
}

# tests NAME PACKAGE COMMAND...: runs tests and keeps their log; no test at all is a failure too.
tests() {
    local name=$1 log=$logs/${1// /-} begin=$SECONDS
    shift
    if "$@" >"$log" 2>&1 && grep -q '^test result: ok. [1-9]' "$log"; then
        report "$name" ok "$(counts "$log") ($((SECONDS - begin)) s)"
    else
        grep -E '^(error|test .*FAILED|thread .* panicked|.*WARNING: ThreadSanitizer|==.*ERROR)' -A 12 "$log" | head -60 >&2
        report "$name" FAILED "$(counts "$log"); the log is $log"
    fi
}

# Models under `--cfg loom`: the crates' sync modules use loom's types.
part_loom() {
    local package
    for package in dat-arena dat-core softrxe-near; do
        RUSTFLAGS="--cfg loom" CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_TARGET_DIR=$target/loom \
            tests "loom $package" cargo test --quiet --locked -p "$package" --lib -- models::
    done
}

part_miri() {
    if ! cargo "+$nightly" miri --version >/dev/null 2>&1; then
        missing miri "no miri in the toolchain '$nightly': rustup component add miri rust-src --toolchain $nightly"
        return
    fi
    # Addresses come from C as numbers; temporary files and clocks are the host's; the memory of objects is never
    # freed.
    local flags="-Zmiri-permissive-provenance -Zmiri-disable-isolation -Zmiri-ignore-leaks" target_name
    # on_miri NAME ARGUMENT...
    on_miri() {
        local name=$1
        shift
        MIRIFLAGS=$flags tests "miri $name" cargo "+$nightly" miri test --quiet --locked --target-dir "$target/miri" "$@"
    }
    on_miri dat-arena -p dat-arena --lib
    on_miri dat-core -p dat-core --lib
    on_miri dat-handshake -p dat-handshake --lib
    on_miri dat-c-library -p dat-c-library --lib
    on_miri dat-provider-c -p dat-provider-c --lib
    # The test that is left out tries all ports.
    on_miri dat-provider-parts -p dat-provider-parts --lib -- --skip without_a_wish
    on_miri dat-abi -p dat-abi --lib --test tables --test common_service_points
    # Left out: what starts the C compiler, opens files without waiting, or measures time.
    on_miri dat-registry -p dat-registry --lib -- --skip search:: --skip elf:: --skip another_machine --skip takes_time
    # Left out: thousands of packets.
    on_miri softrxe-proto -p softrxe-proto --lib -- --skip the_oldest_make_room --skip express::
    on_miri softrxe-near -p softrxe-near --lib --test looped
    # Several orders of both ends of a ring, and the other model of references.
    flags+=" -Zmiri-many-seeds=0..8" on_miri softrxe-near-orders -p softrxe-near --test looped -- between
    flags+=" -Zmiri-tree-borrows" on_miri softrxe-near-tree -p softrxe-near --lib --test looped
    flags+=" -Zmiri-tree-borrows" on_miri dat-abi-tree -p dat-abi --test tables -- two_endpoints
    # A big endian processor, and one of 32 bits. The engine runs on neither; the formats must not depend on it.
    for target_name in s390x i686; do
        on_miri "dat-handshake-$target_name" --target $target_name-unknown-linux-gnu -p dat-handshake --lib
        on_miri "softrxe-proto-$target_name" --target $target_name-unknown-linux-gnu -p softrxe-proto --lib -- wire::
    done
    on_miri softrxe-near-s390x --target s390x-unknown-linux-gnu -p softrxe-near --lib --test looped
}

# Runs unmodified C programs on both C libraries and the user engine, which are built with a sanitizer. gcc's runtime,
# which has the compiler's interface, is loaded before them. The standard library is built with the sanitizer too.
# on_engine NAME RUSTC RUNTIME OPTIONS [WRONG]: NAME is gcc's name of the sanitizer's library, RUSTC the compiler's of
# the sanitizer; OPTIONS assigns the runtime's variable, to which the file for findings is added; WRONG is a program
# that must produce a finding.
on_engine() {
    local name=$1 sanitizer=$2 runtime=/usr/lib/x86_64-linux-gnu/$3 options=$4 wrong=${5:-}
    local begin=$SECONDS lib=$target/$name/lib work=$target/$name/run
    if [ ! -e "$runtime" ] || ! command -v dtest >/dev/null || ! cargo "+$nightly" --version >/dev/null 2>&1; then
        missing "$name" "needs $runtime, dtest (apt-get install ${3/.so./} dapl2-utils) and the toolchain '$nightly'"
        return
    fi
    local triple=x86_64-unknown-linux-gnu
    if ! RUSTFLAGS="-Zsanitizer=$sanitizer" CARGO_PROFILE_DEV_OPT_LEVEL=1 cargo "+$nightly" build --locked -Zbuild-std --target "$triple" \
        --target-dir "$target/$name" -p dat2 -p dat1 -p dat-provider-softrxe >"$logs/$name-build" 2>&1; then
        report "$name" FAILED "does not build; the log is $logs/$name-build"
        return
    fi
    rm -rf "$lib" "$work"
    mkdir -p "$lib" "$work"
    local built=$target/$name/$triple/debug
    cp "$built/libdat2.so" "$lib/libdat2.so.2"
    cp "$built/libdat1.so" "$lib/libdat.so.1"
    ln -s libdat2.so.2 "$lib/libdat2.so"
    ln -s libdat.so.1 "$lib/libdat.so"
    cp "$built/libdat_provider_softrxe.so" "$lib/libdat-provider-softrxe.so.2"
    # The compiler's names (__tsan_memcpy and so on) for functions that gcc 12's runtime intercepts under the C
    # library's names.
    printf '%s\n' '#include <string.h>' \
        "void *__${name}_memcpy(void *d, const void *s, size_t n) { return memcpy(d, s, n); }" \
        "void *__${name}_memmove(void *d, const void *s, size_t n) { return memmove(d, s, n); }" \
        "void *__${name}_memset(void *d, int c, size_t n) { return memset(d, c, n); }" >"$work/names.c"
    gcc -shared -fPIC -O1 -fno-builtin -o "$work/names.so" "$work/names.c"
    local preload=$runtime:$work/names.so
    local api n
    for api in u2.0 u1.2; do
        echo "adapter $api nonthreadsafe default libdat-provider-softrxe.so.2 dapl.2.0 \"127.0.8.1 0 engine=user\" \"\""
    done >"$work/dat.conf"
    # The two IAs of threads.c, whose endpoints are in several lanes.
    for n in cl:2 sl:3; do
        echo "${n%:*} u2.0 threadsafe default libdat-provider-softrxe.so.2 dapl.2.0 \"127.0.8.${n#*:} 0 engine=user lanes=3\" \"\""
    done >>"$work/dat.conf"
    # If a program is missing, its run below fails.
    gcc -g -I capi/include -o "$work/mpi-2.0" tests/c/mpi_like/*.c -ldl
    gcc -g -DUDAPL_1_2 -I capi/include -o "$work/mpi-1.2" tests/c/mpi_like/*.c -ldl
    # run LOG COMMAND...
    run() {
        local log=$1
        shift
        env LD_LIBRARY_PATH="$lib" DAT_OVERRIDE="$work/dat.conf" LD_PRELOAD="$preload" \
            "$options:log_path=$work/${findings:-findings}" \
            timeout -k 5 240 "$@" >"$work/$log" 2>&1
    }
    local bad=""
    run server stdbuf -oL dtest -P adapter -s -b 4096 -B 5 &
    local server=$!
    for n in $(seq 600); do
        grep -q 'Server is waiting' "$work/server" 2>/dev/null && break
        sleep 0.1
    done
    run dtest dtest -P adapter -h 127.0.8.1 -b 4096 -B 5
    wait $server
    grep -q 'DAPL Test Complete. PASSED' "$work/dtest" || bad+=" dtest"
    for n in 1.2 2.0; do
        run "mpi-$n.log" "$work/mpi-$n" cno adapter
        grep -q 'mpi_like: PASS' "$work/mpi-$n.log" || bad+=" mpi-$n"
    done
    gcc -g -O1 -I capi/include -L "$lib" -Wl,--unresolved-symbols=ignore-in-shared-libs -o "$work/threads" tests/bench/threads.c -ldat2 -lpthread
    run threads.log "$work/threads" lanes 4
    grep -q '^lanes, 4 threads' "$work/threads.log" || bad+=" threads"
    if [ -n "$wrong" ]; then
        sed 's/^adapter u2.0/another u2.0/' "$work/dat.conf" >"$work/more.conf"
        cat "$work/more.conf" >>"$work/dat.conf"
        gcc -g -I capi/include -o "$work/$wrong" "tests/c/$wrong.c" -ldl
        findings=control run "$wrong.log" "$work/$wrong"
        grep -q 'ERROR: AddressSanitizer: heap-buffer-overflow' "$work"/control.* || bad+=" $wrong (was not noticed)"
    fi
    local findings
    findings=$(cat "$work"/findings.* 2>/dev/null | grep -cE '^WARNING: ThreadSanitizer|ERROR: AddressSanitizer')
    if [ -n "$bad" ] || [ "$findings" != 0 ]; then
        cat "$work"/findings.* 2>/dev/null | grep '^SUMMARY' | sort | uniq -c | sort -rn | head -20 >&2
        report "$name" FAILED "$findings findings in $work/findings.*;${bad:+ did not end well:$bad} ($((SECONDS - begin)) s)"
    else
        report "$name" ok "dtest, mpi_like of 1.2 and 2.0, and threads of several lanes without a finding ($((SECONDS - begin)) s)"
    fi
}

# Data races. The standard library is built with the sanitizer too, so its synchronisation is recognised.
part_tsan() {
    on_engine tsan thread libtsan.so.2 TSAN_OPTIONS=report_signal_unsafe=0
}

# Accesses outside of objects and after their end. Leaks are no finding: the memory of DAT objects is never freed.
part_asan() {
    on_engine asan address libasan.so.8 ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1 short_list
}

# Data races in the Rust API: threads and an adapter share the bytes of a region, and threads wait on one dispatcher. ThreadSanitizer
# does not see assembly, so the copies are atomic accesses of bytes.
part_udapl() {
    local triple=x86_64-unknown-linux-gnu
    if [ ! -e "$(rustc "+$nightly" --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library" ]; then
        missing udapl "no rust-src in the toolchain '$nightly': rustup component add rust-src --toolchain $nightly"
        return
    fi
    RUSTFLAGS="-Zsanitizer=thread --cfg udapl_bytewise" CARGO_PROFILE_DEV_OPT_LEVEL=1 \
        tests udapl cargo "+$nightly" test --locked -Zbuild-std --target "$triple" --target-dir "$target/udapl-tsan" \
        -p udapl --test shared_bytes --test waits
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(loom miri tsan asan udapl)
for part in "${parts[@]}"; do
    declare -F "part_$part" >/dev/null || { echo "sanitize: no part '$part'; the parts are loom miri tsan asan udapl" >&2; exit 2; }
    "part_$part"
done
[ $failed = 0 ]
