#!/bin/bash
# The quick check of a change: formatting and the unit tests of all library crates. Needs cargo and a C compiler, and
# neither root, nor packages of the system, nor RDMA. Prints how long each part took.
#
# usage: check.sh
set -uo pipefail
cd "$(dirname "$0")/.."

failed=0
# Tests that cannot run here list themselves in this file.
DAT_UNTESTED=$(mktemp)
export DAT_UNTESTED
trap 'rm -f "$DAT_UNTESTED"' EXIT
# part NAME COMMAND...
part() {
    local name=$1 begin=$SECONDS verdict=ok
    shift
    "$@" || { verdict=FAILED; failed=1; }
    echo "check: $name $verdict ($((SECONDS - begin)) s)"
}

# A profile of its own: without debug information the build takes half the time, and the developer's build stays.
tests=(cargo test --locked --quiet --profile quick --workspace --lib --exclude dat-hostile --exclude dat-bench \
    --exclude dat-faulty-loopback)

part format cargo fmt --all --check
part build "${tests[@]}" --no-run
part tests "${tests[@]}"
sed 's/^/check: not tested: /' "$DAT_UNTESTED"
exit $failed
