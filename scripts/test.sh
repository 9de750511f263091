#!/bin/bash
# Runs everything that CI runs. Prints each step's output and keeps it in target/test-logs; the end lists the steps
# with their runners' closing lines. Later steps run even if one fails, so one run shows all failures.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=${CARGO_TARGET_DIR:-target}/test-logs
rm -rf "$logs"
mkdir -p "$logs"
export CARGO_TERM_COLOR=never RUSTDOCFLAGS="-D warnings"

names=() verdicts=()
failed=0

# step NAME COMMAND...
step() {
    local name=$1 begin=$SECONDS verdict=ok
    shift
    echo "==== $name: $*"
    "$@" 2>&1 | tee "$logs/$name"
    if [ "${PIPESTATUS[0]}" != 0 ]; then
        verdict=FAILED
        failed=$((failed + 1))
    fi
    names+=("$name")
    verdicts+=("$verdict $((SECONDS - begin))s")
}

# Builds the shared objects and the command that tests load, as `dat_tests::built` does: within a test, the build would
# count against its time limit.
unit() {
    cargo build --locked --quiet --target-dir "${CARGO_TARGET_DIR:-target}/built" -p dat1 -p dat2 -p dat-loopback-provider -p dat-provider-softrxe -p dat-provider-ibverbs -p dat-tools &&
        cargo nextest run --locked --workspace &&
        cargo nextest run --locked -p udapl --all-features
}

step bootstrap scripts/bootstrap.sh
step format cargo fmt --all --check
step lint cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
step document cargo doc --locked --workspace --no-deps --quiet
step dist scripts/dist.sh
step unit unit
step bindings scripts/bindings.sh
step doc-tests cargo test --locked --workspace --doc --quiet
step loom scripts/sanitize.sh loom
step hotpath scripts/hotpath-ceilings.sh
step valgrind scripts/valgrind.sh
step clients-host tests/lab/clients.sh --host
step lab-selftest tests/lab/selftest.sh
step lab-tests scripts/lab-tests.sh
step clients tests/lab/clients.sh
step interop tests/lab/interop.sh

echo
echo "==== closing lines"
for i in "${!names[@]}"; do
    printf '%-13s %-12s\n' "${names[i]}" "${verdicts[i]}"
    # nextest, libtest and our own runners print a final line of counts.
    grep -hE '^ *(Summary \[|test result:|lab self-test:|clients: |interop: [0-9]|valgrind: |sanitize: |hotpath: )' "$logs/${names[i]}" | sort | uniq -c | sed -E 's/^ +1 +//; s/^ +([0-9]+) +/\1 x /; s/^/              /'
done
echo "$((${#names[@]} - failed)) of ${#names[@]} steps passed in $((SECONDS / 60)) min $((SECONDS % 60)) s"
[ $failed = 0 ]
