#!/bin/bash
# Compares the declarations of libibverbs and librdmacm in dat-verbs/src/sys with those that the crate rdma-sys
# generates from the installed headers. rdma-sys 0.3 builds with libclang 15 and older; where Debian has a newer one the
# script says so and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(apt-cache policy libclang-dev 2>/dev/null | sed -n 's/^  Candidate: [0-9]*:\([0-9]*\).*/\1/p')
if [ -z "$version" ] || [ "$version" -gt 15 ]; then
    echo "bindings: not compared: rdma-sys 0.3 needs libclang 15 or older, and this system has ${version:-no package of it}"
    exit 0
fi
scripts/bootstrap.sh bindings
cargo test --quiet --locked -p dat-verbs --features rdma-sys --lib agreement
