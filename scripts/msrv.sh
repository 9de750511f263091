#!/bin/bash
# Compiles everything, tests included, with the oldest Rust that Cargo.toml promises (rust-version).
#
# usage: msrv.sh          rustup installs that Rust if it is missing
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
command -v rustup > /dev/null || { echo "msrv: rustup is missing: it installs Rust $version beside the default one (https://rustup.rs)" >&2; exit 1; }
rustup toolchain list | grep -q "^$version-" || rustup toolchain install "$version" --profile minimal --no-self-update
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/msrv cargo "+$version" check --quiet --locked --workspace --all-targets
echo "msrv: everything compiles with Rust $version"
