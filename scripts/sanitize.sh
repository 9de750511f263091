#!/bin/bash
# What tests cannot see: orders of threads (loom), undefined behaviour (miri), wrong accesses (AddressSanitizer) and data races
# (ThreadSanitizer). One line of result for each part; fails on any finding, and when a part cannot run. docs/sanitizers.md says what each part shows.
#
# usage: sanitize.sh [PART]...        parts: loom miri, all without any. Loom needs the stable toolchain alone; miri needs nightly:
#        rustup component add miri rust-src --toolchain nightly
set -uo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
logs=$target/sanitize
mkdir -p "$logs"
export CARGO_TERM_COLOR=never
nightly=${DAT_NIGHTLY:-nightly}
failed=0

# report NAME VERDICT TEXT: the line of one part.
report() {
    [ "$2" = ok ] || failed=$((failed + 1))
    echo "sanitize: $1 $2: $3"
}

# missing NAME TEXT: a part that this machine cannot run is a failure, not a pass.
missing() {
    report "$1" MISSING "$2"
}

# counts LOG: how many tests passed in all of cargo's or libtest's runs.
counts() {
    awk '/^test result:/ { passed += $4; bad += $6 } END { printf "%d passed, %d failed", passed, bad }' "$1"
}

# tests NAME PACKAGE COMMAND...: runs tests, whose log is kept; no test at all is a failure too.
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

# Models under `--cfg loom`: the crates' sync modules give them loom's types.
part_loom() {
    local package
    for package in dat-arena dat-core; do
        RUSTFLAGS="--cfg loom" CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_TARGET_DIR=$target/loom \
            tests "loom $package" cargo test --quiet --locked -p "$package" --lib -- models::
    done
}

part_miri() {
    if ! cargo "+$nightly" miri --version >/dev/null 2>&1; then
        missing miri "no miri in the toolchain '$nightly': rustup component add miri rust-src --toolchain $nightly"
        return
    fi
    # Addresses come from C as numbers; temporary files and clocks are the host's; memory of objects is never given back.
    export MIRIFLAGS="-Zmiri-permissive-provenance -Zmiri-disable-isolation -Zmiri-ignore-leaks"
    local package
    for package in dat-arena softrxe-proto dat-registry dat-core; do
        tests "miri $package" cargo "+$nightly" miri test --quiet --locked --target-dir "$target/miri" -p "$package" --lib
    done
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(loom miri)
for part in "${parts[@]}"; do
    declare -F "part_$part" >/dev/null || { echo "sanitize: no part '$part'; the parts are loom miri" >&2; exit 2; }
    "part_$part"
done
[ $failed = 0 ]
