# Sourced by the scripts that build with the profile release: no path of the machine that builds gets into what is
# installed. All of them use it, as cargo builds a crate again when the flags differ.
home=${CARGO_HOME:-$HOME/.cargo}
flags=(${RUSTFLAGS:-})
# The last prefix that fits wins, and a path may lie in several. Debuggers find the sources of the compiler's own
# libraries under /rustc, wherever the component rust-src is installed.
flags+=("--remap-path-prefix=$PWD=/usr/src/dat-rdma")
flags+=("--remap-path-prefix=$(rustc --print sysroot)/lib/rustlib/src/rust=/rustc/src")
flags+=("--remap-path-prefix=$home/registry/src=/usr/src/crates")
# Cargo's form for flags with spaces in them: their separator is the byte 0x1f.
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f' "${flags[@]}")
export CARGO_ENCODED_RUSTFLAGS=${CARGO_ENCODED_RUSTFLAGS%$'\x1f'}
# For the C files; the crate cc reads the flags as a shell does, so that the folder may have a space.
export CC_SHELL_ESCAPED_FLAGS=1 CFLAGS="${CFLAGS:-} -ffile-prefix-map=$(printf %q "$PWD")=/usr/src/dat-rdma"
unset home flags
