#!/bin/bash
# Runs everything that CI runs. Prints the steps, each step's output and duration, and keeps the output in
# target/test-logs; the end lists the steps with their runners' closing lines, and what was run again. Later steps run
# even if one fails, so one run shows all failures. A guest uses one processor, so the steps that build little and measure no time
# run beside the guests.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=${CARGO_TARGET_DIR:-target}/test-logs
rm -rf "$logs"
mkdir -p "$logs"
export CARGO_TERM_COLOR=never RUSTDOCFLAGS="-D warnings"
# Nothing is built twice here, and a backtrace needs lines only: the default, incremental with all of debug information,
# takes three times the disk.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_PROFILE_TEST_DEBUG=line-tables-only

# Tests that cannot run here, as without root, list themselves in this file instead of failing.
DAT_UNTESTED=$(realpath "$logs")/untested
export DAT_UNTESTED

names=() contents=() commands=() lanes=()

# step NAME CONTENT COMMAND...: adds a step. With `lane` set to a letter it runs beside the steps of other lanes.
step() {
    names+=("$1")
    contents+=("$2")
    lanes+=("${lane:-}")
    shift 2
    commands+=("$(printf '%q ' "$@")")
}

# run INDEX: runs a step, and keeps its verdict.
run() {
    local name=${names[$1]} command=${commands[$1]} begin=$SECONDS verdict=ok shell=$BASHPID before used
    before=$(processor_time "$shell")
    echo "==== $name: $command"
    eval "$command" 2>&1 | tee "$logs/$name"
    [ "${PIPESTATUS[0]}" = 0 ] || verdict=FAILED
    used=$(($(processor_time "$shell") - before))
    echo "$verdict $((SECONDS - begin))s, ${used}s of processors" >"$logs/$name.verdict"
    echo "==== $name: $verdict in $((SECONDS - begin)) s, $used s of processors, after $((SECONDS / 60)) min $((SECONDS % 60)) s; $(room)"
}

# run_lane LETTER: runs the steps of a lane, and prefixes what they print.
run_lane() {
    local i
    for i in "${!names[@]}"; do
        [ "${lanes[i]}" != "$1" ] || run "$i" 2>&1 | sed -u "s/^/$1| /"
    done
}

# Prints the processor time of the programs that ended so far below process PID, in seconds (proc_pid_stat(5): cutime and
# cstime, 100 a second). A step that took much longer than its processors waited, or the machine was busy with something else.
processor_time() {
    awk '{ printf "%d\n", ($16 + $17) / 100 }' "/proc/$1/stat"
}

# Prints how much disk the build directory takes, and how much is left: a full disk fails in odd ways.
room() {
    echo "$(du -sm "${CARGO_TARGET_DIR:-target}" | cut -f1) MB built, $(df -m --output=avail "${CARGO_TARGET_DIR:-target}" | tail -1 | tr -d ' ') MB of disk left"
}

# Prints what was run again in the step of log FILE: a test (nextest), a client, a row, the boot of a guest.
again() {
    grep -hE '^ +FLAKY |: pass, try [0-9]|at the second try|did not come up \(boot' "$1"
}

# Builds the shared objects and the command that tests load, as `dat_tests::built` does: within a test, the build would
# count against its time limit. Most tests wait for most of their time, so there are two at a time for each processor.
unit() {
    local threads=$((2 * $(nproc)))
    cargo build --locked --quiet --target-dir "${CARGO_TARGET_DIR:-target}/built" -p dat1 -p dat2 -p dat-loopback-provider -p dat-faulty-provider -p dat-provider-softrxe -p dat-provider-ibverbs -p dat-provider-filter -p dat-provider-c -p dat-tools &&
        cargo nextest run --locked --profile ci --test-threads $threads --workspace &&
        cargo nextest run --locked --profile ci --test-threads $threads -p udapl --all-features
}

# The features of the Rust API have examples of their own.
doc_tests() {
    cargo test --locked --workspace --doc --quiet &&
        cargo test --locked -p udapl --all-features --doc --quiet
}

packages() {
    scripts/bootstrap.sh packages && tests/packages.sh prefix deb rpm && tests/kit.sh
}

step bootstrap "install missing packages" scripts/bootstrap.sh
step format "compare all code with its formatted form" cargo fmt --all --check
step lint "clippy, warnings are errors" cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
step document "build the documentation, warnings are errors" cargo doc --locked --workspace --no-deps --quiet
step dist "build target/dist, optimised" scripts/dist.sh
step unit "unit tests, and tests of several processes on this host" unit
step bindings "compare our declarations of verbs with rdma-core's headers" scripts/bindings.sh
step doc-tests "examples in the documentation" doc_tests
step package "cargo publish --dry-run of the Rust API and the provider kit" scripts/package.sh
step loom "all thread orders of the lock-free parts" scripts/sanitize.sh loom
step hotpath "instructions of posts and dequeues, against their ceilings" scripts/hotpath-ceilings.sh
step valgrind "C programs under memcheck" scripts/valgrind.sh
lane=A
step packages "packages and make install: installed, used, upgraded, removed; the guide for authors of providers with only the kit" packages
step arm64 "build for 64-bit ARM; unit tests and C programs under qemu-user" scripts/ports.sh arm64
step clients-host "unmodified DAPL clients on the user engine" tests/lab/clients.sh --host
lane=B
step lab-selftest "the lab itself: no failure looks like success" tests/lab/selftest.sh --failures
step lab-tests "tests that need RDMA, in a guest" scripts/lab-tests.sh
step clients "unmodified DAPL clients on each pairing, in a guest" tests/lab/clients.sh
step interop "the user engine against rdma_rxe, in a guest" tests/lab/interop.sh

echo "==== ${#names[@]} steps; logs are in $logs"
for i in "${!names[@]}"; do
    printf '%-13s %s\n' "${names[i]}" "${contents[i]}"
done
for i in "${!names[@]}"; do
    [ -n "${lanes[i]}" ] || run "$i"
done
for lane in A B; do
    run_lane $lane &
done
wait

echo
echo "==== closing lines"
failed=0
for i in "${!names[@]}"; do
    verdict=$(cat "$logs/${names[i]}.verdict" 2>/dev/null || echo "FAILED to run")
    [ "${verdict%% *}" = ok ] || failed=$((failed + 1))
    printf '%-13s %s\n' "${names[i]}" "$verdict"
    # nextest, libtest and our own runners print a final line of counts.
    grep -hE '^ *(Summary \[|test result:|lab self-test:|clients: |interop: [0-9]|package: |packages: [0-9]|kit: |arm64: [0-9]|valgrind: |sanitize: |hotpath: )' "$logs/${names[i]}" | sort | uniq -c | sed -E 's/^ +1 +//; s/^ +([0-9]+) +/\1 x /; s/^/              /'
done
for name in "${names[@]}"; do
    again "$logs/$name" | sed -E "s/^ */run again in $name: /"
done
[ ! -s "$DAT_UNTESTED" ] || sort -u "$DAT_UNTESTED" | sed 's/^/NOT TESTED: /'
echo "$((${#names[@]} - failed)) of ${#names[@]} steps passed in $((SECONDS / 60)) min $((SECONDS % 60)) s"
[ $failed = 0 ]
