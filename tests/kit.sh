#!/bin/bash
# The journey of an author: only the kit is installed, and the commands of docs/writing-a-provider.md are run in an empty
# folder, in Rust and in C, with our libdat2 and, for dtest, with Debian's. Our crates are the kit's; the crates of others
# come from cargo's cache, so no network is needed.
#
# usage: kit.sh      needs target/dist, gcc, pkg-config and Debian's dapl2-utils
set -euo pipefail
cd "$(dirname "$0")/.."
dist=${DAT_DIST:-${CARGO_TARGET_DIR:-target}/dist}
[ -e "$dist/bin/dat" ] || { echo "kit: no $dist; run make dist first" >&2; exit 1; }
if [ "${DAT_KIT_ALONE:-}" != 1 ]; then
    # dtest's TCP port is fixed: a network of its own.
    DAT_KIT_ALONE=1 exec unshare --net --map-root-user "$0" "$@"
fi
ip link set lo up

work=$(mktemp -d "${TMPDIR:-/tmp}/dat-kit.XXXXXX")
trap 'rm -rf "$work"' EXIT
DAT_DIST=$dist PREFIX=$work/prefix libdir=$work/prefix/lib scripts/install.sh install 2>/dev/null
guide=$work/prefix/share/doc/dat/writing-a-provider.md
export PATH="$work/prefix/bin:$PATH" CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never
unset CARGO_TARGET_DIR CARGO_ENCODED_RUSTFLAGS DAT_OVERRIDE LD_LIBRARY_PATH DAT_LOG MAKEFLAGS MAKELEVEL

# block NUMBER: the commands of the guide's first or second block below the heading.
block() {
    awk -v want="$1" '/^## / { in_part = /^## The first provider/ } !in_part { next }
        /^```sh/ { at++; on = 1; next } /^```/ { on = 0 } on && at == want' "$guide"
}

journeys=0
for language in 1:Rust 2:C; do
    commands=$(block "${language%%:*}")
    [ "$(grep -c . <<<"$commands")" -ge 4 ] || { echo "kit: FAILED: the guide has no block of commands for ${language#*:}" >&2; exit 1; }
    mkdir "$work/empty"
    begin=$SECONDS
    if ! (cd "$work/empty" && bash -euo pipefail -c "$commands") >"$work/said" 2>&1; then
        tail -n 60 "$work/said" | sed 's/^/    /' >&2
        echo "kit: FAILED: the guide's commands for ${language#*:}" >&2
        exit 1
    fi
    # dtest.sh prints a line of each side.
    [ "$(grep -c 'DAPL Test Complete. PASSED' "$work/said")" = 2 ] || { cat "$work/said"; echo "kit: FAILED: dtest for ${language#*:}" >&2; exit 1; }
    echo "kit: ok: ${language#*:}, from an empty folder to dtest in $((SECONDS - begin)) s: $(grep 'statements hold' "$work/said")"
    (cd "$work"/empty/* && LD_LIBRARY_PATH=$work/prefix/lib ./dtest.sh >"$work/said" 2>&1) || { cat "$work/said"; echo "kit: FAILED: dtest under our library" >&2; exit 1; }
    rm -r "$work/empty"
    journeys=$((journeys + 1))
done
echo "kit: $journeys journeys passed"
