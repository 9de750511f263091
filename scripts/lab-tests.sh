#!/bin/bash
# Builds the Rust tests that need RDMA (test binaries named lab_*) here and runs them in one lab. What they leave in $DAT_LAB_OUT is then
# in target/lab/out.
#
# usage: lab-tests.sh [nextest FILTER]...
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
rm -rf "$target/lab/out"
mkdir -p "$target/lab"

# The lists give nextest in the guest the paths of the binaries; cargo itself would take longer there than the tests.
cargo metadata --format-version 1 --locked >"$target/lab/metadata.json"
cargo nextest list --locked --workspace --profile lab --list-type binaries-only --message-format json >"$target/lab/binaries.json"

# In a loaded guest gcc takes longer than the program. The test of it says so where there is no dist.
[ ! -e "$target/dist/lib" ] || gcc -Wall -Wextra -Werror -g -I capi/include tests/c/model/*.c -L "$target/dist/lib" -ldat2 -lpthread -o "$target/lab/model"
exec tests/lab/run.sh --netns --timeout "${DAT_LAB_TIMEOUT:-900}" --out "$target/lab/out" -- cargo-nextest nextest run --profile lab --no-input-handler \
    --cargo-metadata "$target/lab/metadata.json" --binaries-metadata "$target/lab/binaries.json" --run-ignored all "$@"
