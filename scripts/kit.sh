#!/bin/bash
# Lays out the provider kit: the crates that a provider depends on, as one workspace, and the examples. scripts/dist.sh runs
# it; `dat new-provider` names the folder in the crates that it makes. Other crates come from crates.io.
#
# usage: kit.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
to=$1
crates=(dat-arena dat-os dat-core dat-abi dat-provider dat-provider/parts)

for crate in "${crates[@]}"; do
    mkdir -p "$to/$crate"
    cp "$crate"/{README.md,LICENSE-MIT,LICENSE-APACHE} "$to/$crate/"
    [ ! -e "$crate/build.rs" ] || cp "$crate/build.rs" "$to/$crate/"
    cp -r "$crate/src" "$to/$crate/"
    # Tests stay behind, and with them the crates that only they need.
    awk '/^\[/ { skip = /dev-dependencies]/ } !skip' "$crate/Cargo.toml" >"$to/$crate/Cargo.toml"
done
{
    echo "# The crates of the provider kit; docs/writing-a-provider.md is the guide."
    echo "[workspace]"
    echo 'resolver = "3"'
    printf 'members = ['
    printf '"%s", ' "${crates[@]}"
    printf ']\n\n'
    awk '/^\[/ { keep = /^\[workspace\.(package|dependencies|lints)/ } keep' Cargo.toml |
        awk '!/path = / { print; next } { split($0, part, "path = \""); sub(/".*/, "", part[2]); if ((part[2] "/") ~ "^('"$(IFS='|'; echo "${crates[*]}")"')/$") print }'
} >"$to/Cargo.toml"
mkdir -p "$to/examples"
cp -r examples/pipe examples/loopback examples/loopback-provider examples/c-transport "$to/examples/"
# They are members of another workspace, which has their tests.
rm -rf "$to"/examples/*/tests
