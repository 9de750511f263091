#!/bin/bash
# Coverage-guided fuzzing with libFuzzer, on the stable toolchain: the user engine's protocol, messages of a host's
# processes and of the scm provider, private data and dat.conf. usage: fuzz.sh [HOURS [BODY...]].
# The bodies alternate, at most ten minutes each. Corpus and findings are kept in target/fuzz; a finding ends the run,
# which prints its body.
set -euo pipefail
cd "$(dirname "$0")/.."
hours=${1:-0.1}
shift || true
bodies=("${@:-}")
[ -n "${bodies[0]}" ] || bodies=(wire cm responder requester near pair conf scm port private ring)
target=${CARGO_TARGET_DIR:-$PWD/target}
home=$target/fuzz
# The flags that cargo-fuzz sets without a sanitizer; sanitizers need nightly.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS=$flags cargo build --quiet --release --manifest-path fuzz/Cargo.toml --target "$host" --target-dir "$home/build"
cargo run --quiet -p dat-fuzz -- --seeds "$home/seeds"

seconds=$(awk -v hours="$hours" 'BEGIN { printf "%d", hours * 3600 }')
end=$(($(date +%s) + seconds))
share=$((seconds / ${#bodies[@]}))
share=$((share > 600 ? 600 : share < 1 ? 1 : share))

declare -A runs spent
while [ "$(date +%s)" -lt "$end" ]; do
    for body in "${bodies[@]}"; do
        left=$((end - $(date +%s)))
        turn=$((left < share ? left : share))
        [ "$turn" -gt 0 ] || break
        mkdir -p "$home/corpus/$body" "$home/findings"
        log=$home/$body.log
        if ! "$home/build/$host/release/$body" -max_total_time="$turn" -max_len=8192 -timeout=20 -rss_limit_mb=1024 \
            -malloc_limit_mb=64 -print_final_stats=1 -artifact_prefix="$home/findings/$body-" \
            "$home/corpus/$body" "$home/seeds/$body" >"$log" 2>&1; then
            grep -vE '^(#|INFO)' "$log" | tail -40
            echo "fuzz: $body has a finding, see $home/findings; cargo run -p dat-fuzz -- --replay $body FILE shows it again"
            exit 1
        fi
        done=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        runs[$body]=$((${runs[$body]:-0} + ${done:-0}))
        spent[$body]=$((${spent[$body]:-0} + turn))
    done
done
for body in "${bodies[@]}"; do
    printf 'fuzz: %-10s %12d runs in %6d s, %d inputs kept, no finding\n' "$body" "${runs[$body]:-0}" "${spent[$body]:-0}" \
        "$(ls "$home/corpus/$body" | wc -l)"
done
