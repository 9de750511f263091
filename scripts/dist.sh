#!/bin/bash
# Lays out target/dist: what a user of existing DAT programs needs, working in place.
#
# usage: dist.sh [--profile PROFILE] [--to DIR]      default: release, target/dist; the profile dev builds sooner
#
#   bin/dat                  the command
#   lib/                     libdat2.so.2, libdat.so.1 under their sonames, providers, libdat_transport.a, pkgconfig/
#   include/dat2, dat        headers; dat_transport.h
#   share/dat/kit            crates and examples for authors of providers (scripts/kit.sh)
#   etc/dat.conf             names our providers by soname: LD_LIBRARY_PATH finds them
#   share/doc/dat            documents, licences (third-party: of crates that are linked in), examples/c: a program in C
#   share/man, share/*       man pages, completions of the shells
#   share/systemd            units of `dat serve-port`, for /etc/systemd/system
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
profile=release
dist=$target/dist
while [ $# -gt 1 ]; do
    case $1 in
        --profile) profile=$2 ;;
        --to) dist=$2 ;;
        *) break ;;
    esac
    shift 2
done
[ $# = 0 ] || { echo "dist: unknown argument '$1'" >&2; exit 2; }
[ "$profile" = dev ] && built=$target/debug || built=$target/$profile
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)

say() { echo "dist: $*" >&2; }

[ "$profile" = dev ] || . scripts/release-flags.sh
say "building libraries, providers and the command into $built"
# On a terminal cargo shows how far it is; elsewhere it would fill a log. The first build names each crate everywhere, as it takes long.
quiet=(--quiet)
[ ! -t 2 ] || quiet=()
if [ ! -e "$built/dat" ]; then
    quiet=()
    say "the first build compiles all dependencies: about 3 minutes on 2 processors, and 450 MB in $target; later ones take seconds"
fi
packages=(dat2 dat1 dat-provider-ibverbs dat-provider-softrxe dat-provider-filter dat-provider-c dat-tools)
cargo build "${quiet[@]}" --locked --profile "$profile" "${packages[@]/#/--package=}"

say "laying out $dist"
# A fresh folder replaces the old one at the end: a program that runs from the old one keeps its files, and no stale
# file remains.
new=$dist.new
rm -rf "$new"
mkdir -p "$new"/{bin,lib/pkgconfig,include,etc,share/doc/dat,share/systemd}

fail() { echo "dist: $*" >&2; exit 1; }

# library CARGO-NAME FILE SONAME [DEVELOPMENT-LINK]
library() {
    [ -e "$built/$1" ] || fail "cargo built no $built/$1 (is the crate a cdylib?)"
    install -m 755 "$built/$1" "$new/lib/$2"
    [ "$2" = "$3" ] || ln -s "$2" "$new/lib/$3"
    [ -z "${4:-}" ] || ln -s "$3" "$new/lib/$4"
}
# Programs record the soname of the library that they were linked with, and load that. No pipe to grep -q: it ends at
# the first match, and the writer's failure would count.
soname() {
    grep -q "SONAME.*\[$2\]" <<<"$(readelf -d "$new/lib/$1")" || fail "lib/$1 does not have the soname $2"
}
library libdat2.so libdat2.so.2.0.0 libdat2.so.2 libdat2.so
soname libdat2.so.2.0.0 libdat2.so.2
library libdat1.so libdat.so.1.2.0 libdat.so.1 libdat.so
soname libdat.so.1.2.0 libdat.so.1
for provider in ibverbs softrxe filter; do
    library "libdat_provider_$provider.so" "libdat-provider-$provider.so.2" "libdat-provider-$provider.so.2"
    grep -qw dat_provider_init <<<"$(readelf --wide --dyn-syms "$new/lib/libdat-provider-$provider.so.2")" ||
        fail "lib/libdat-provider-$provider.so.2 exports no dat_provider_init"
done

install -m 755 "$built/dat" "$new/bin/dat"
mkdir -p "$new"/share/man/man{1,3,5,7} "$new"/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
"$built/dat" man "$new/share/man/man1"
install -m 644 docs/man/dat.conf.5 "$new/share/man/man5/"
install -m 644 docs/man/man3/*.3 "$new/share/man/man3/"
install -m 644 docs/man/man7/*.7 "$new/share/man/man7/"
"$built/dat" completions bash >"$new/share/bash-completion/completions/dat"
"$built/dat" completions zsh >"$new/share/zsh/site-functions/_dat"
"$built/dat" completions fish >"$new/share/fish/vendor_completions.d/dat.fish"
cp -r capi/include/. "$new/include/"
# For transports in C. The debug information of the static library would be ten times its code.
install -m 644 dat-provider/c/include/dat_transport.h "$new/include/"
strip --strip-debug -o "$new/lib/libdat_transport.a" "$built/libdat_transport.a"
scripts/kit.sh "$new/share/dat/kit"
install -m 644 dat.conf "$new/etc/dat.conf"
install -m 644 ./*.md LICENSE-MIT LICENSE-APACHE "$new/share/doc/dat/"
mkdir "$new/share/doc/dat/third-party"
scripts/notices.py "${packages[@]}" >"$new/share/doc/dat/third-party/crates.txt"
# The notices of the standard library and what it contains come with the toolchain, if it has documents.
notices=$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html
[ ! -e "$notices" ] || install -m 644 "$notices" "$new/share/doc/dat/third-party/rust-library.html"
cp -r docs/. "$new/share/doc/dat/"
rm -r "$new"/share/doc/dat/man/man[37]
install -D -m 644 -t "$new/share/doc/dat/examples/c" examples/c/exchange.c examples/c/Makefile
install -m 644 dat-tools/systemd/* "$new/share/systemd/"

# package NAME LIBRARY VERSION-OF-UDAPL
package() {
    cat >"$new/lib/pkgconfig/$1.pc" <<END
prefix=\${pcfiledir}/../..
libdir=\${prefix}/lib

Name: $1
Description: Direct Access Transport, uDAPL $3
Version: $version
Libs: -L\${libdir} -l$2
Cflags: -I\${prefix}/include
END
}
package dat2 dat2 2.0
package dat dat 1.2
package dat-transport dat_transport "1.2 and 2.0: transports in C"
sed -i "s|-ldat_transport|$(cat dat-provider/c/link-flags)|" "$new/lib/pkgconfig/dat-transport.pc"

rm -rf "$dist"
mv "$new" "$dist"
say "$dist ($profile, $(du -sh "$dist" | cut -f1)); LD_LIBRARY_PATH=$dist/lib DAT_OVERRIDE=$dist/etc/dat.conf runs existing programs on it"
