#!/bin/bash
# Rehearses the publication of `udapl`, `dat-provider` and the crates that they depend on (`cargo publish --dry-run`), and
# checks that each has what a published crate needs. With --build it also builds the packages, each from the files of the
# others' packages (minutes); with --names it asks crates.io whether the names are still free.
#
# usage: package.sh [--build] [--names]
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

build=(--no-verify) names=
for option; do
    case $option in
        --build) build=() ;;
        --names) names=1 ;;
        *) echo "package: unknown option $option" >&2; exit 2 ;;
    esac
done

# The family: the two crates that are used from outside, and what they need of this workspace, apart from tests.
mapfile -t family < <(cargo tree --locked --offline --package udapl --package dat-provider --all-features --edges normal,build --prefix none --format '{p}' |
    awk '/\(\// && !seen[$1]++ { print $1 }' | sort)
[ "${#family[@]}" -gt 5 ] || { echo "package: found only ${family[*]}" >&2; exit 1; }

failed=0
fault() { echo "package: $*" >&2; failed=1; }

options=()
for crate in "${family[@]}"; do options+=(--package "$crate"); done
rm -f "$target"/package/*.crate
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# publish leaves no packages behind to look into.
for command in publish\ --dry-run\ --no-verify "package ${build[*]}"; do
    cargo $command --locked --allow-dirty "${options[@]}" >>"$log" 2>&1 || fault "cargo $command failed:"$'\n'"$(tail -n 20 "$log")"
done
# For instance of a manifest that lacks a description or a licence.
! grep -A3 '^warning' <(grep -v 'aborting upload due to dry run' "$log") >&2 || fault "cargo warns"

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
for crate in "${family[@]}"; do
    package=$target/package/$crate-$version.crate
    [ -f "$package" ] || { fault "there is no $package"; continue; }
    files=$(tar -tzf "$package")
    for file in README.md LICENSE-MIT LICENSE-APACHE Cargo.toml src/lib.rs; do
        grep -qx "$crate-$version/$file" <<<"$files" || fault "$crate lacks $file"
    done
    manifest=$(tar -xOzf "$package" "$crate-$version/Cargo.toml")
    for key in description license documentation readme keywords categories rust-version; do
        grep -q "^$key = " <<<"$manifest" || fault "$crate has no $key"
    done
    # A link would be a file that only this checkout has.
    ! grep -q '^l' <<<"$(tar -tvzf "$package")" || fault "$crate has links"
    if [ -n "$names" ]; then
        ! cargo info --quiet --registry crates-io "$crate" >/dev/null 2>&1 || fault "the name $crate is taken"
    fi
done
[ $failed = 0 ] && echo "package: ${#family[@]} crates: ${family[*]}"
exit $failed
