#!/bin/bash
# Prints Markdown tables and the goals' ratios: the user engine by UDP beside raw UDP with the same datagrams, UCX tcp,
# libfabric and iperf3; and through shared memory, by the C table and the Rust API, beside the bare ring, a bare futex, UCX
# and libfabric; on this machine, in about seven minutes. Missing tools are listed below the tables. See docs/performance.md.
#
# usage: bench.sh [--rounds N] [WORD]     only figures with WORD in "figure, contestant, table", e.g. "64 KiB, GB/s,
# user engine" or "same host"
#        bench.sh api                     the Rust API beside the C table, on one connection
set -euo pipefail
cd "$(dirname "$0")/.."
[ "${DAT_BENCH_BUILT:-}" = 1 ] || {
    scripts/bootstrap.sh build bench || echo "bench: the missing tools are listed below the table" >&2
    scripts/dist.sh
    . scripts/release-flags.sh
    cargo build --quiet --locked --release -p dat-bench
    cargo build --quiet --locked --release -p softrxe-near --example ring_bench
    cargo build --quiet --locked --release -p udapl --features tokio --example tokio_echo
}
target=$(realpath "${CARGO_TARGET_DIR:-target}")
cc -O2 -Wall -Werror -Icapi/include -L"$target/dist/lib" -o "$target/release/near-c" tests/bench/near.c -ldat2
conf=$(mktemp)
trap 'rm -f "$conf"' EXIT
# Two addresses of the loopback, so that each process can own port 4791.
for side in client:127.0.91.1 server:127.0.91.2; do
    for link in bench:off near:auto; do
        echo "${link%%:*}-${side%%:*} u2.0 threadsafe default $target/dist/lib/libdat-provider-softrxe.so.2 dapl.2.0 \"${side#*:} 0 engine=user near=${link#*:}\" \"\"" >>"$conf"
    done
done
echo "$(nproc) processors: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1); Linux $(uname -r); load $(cut -d ' ' -f 1 /proc/loadavg)"
echo
DAT_OVERRIDE=$conf DAT_LOG=error LD_LIBRARY_PATH=$target/dist/lib "$target/release/dat-bench" "$@"
