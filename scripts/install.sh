#!/bin/bash
# Copies target/dist into a prefix, or removes what it copied there. `make install` and `make uninstall` run it, and
# scripts/packages.sh. It builds nothing, so that root needs no compiler. docs/installing.md is the page about it.
#
# usage: install.sh install|uninstall      Variables, with what they are without a value:
#   PREFIX=/usr/local             DESTDIR=        a folder in front of every path, for packages
#   libdir=PREFIX/lib             librarydir=libdir (libdat2.so.2, libdat.so.1; the providers are in libdir)
#   bindir=PREFIX/bin             includedir=PREFIX/include        datadir=PREFIX/share     mandir=datadir/man
#   docdir=datadir/doc/dat        unitdir=PREFIX/lib/systemd/system
#   kitdir=datadir/dat/kit        crates and examples for authors of providers
#   sysconfdir=PREFIX/etc (/etc if PREFIX is /usr)                 conffile=sysconfdir/dat.conf
#   STRIP=yes                     no: with debug information       debugdir=   a folder for debug files, by build id
set -euo pipefail
# Files and folders are for all users, whatever the administrator's own are for.
umask 022

fail() { echo "install: $*" >&2; exit 1; }
case ${1:-} in install | uninstall) ;; *) fail "usage: install.sh install|uninstall" ;; esac

: "${PREFIX:=/usr/local}" "${DESTDIR:=}" "${STRIP:=yes}" "${debugdir:=}"
PREFIX=${PREFIX%/}
[ -z "$DESTDIR" ] || DESTDIR=$(realpath -m "$DESTDIR")
cd "$(dirname "$0")/.."
[ "$PREFIX" = /usr ] && etc=/etc || etc=$PREFIX/etc
: "${libdir:=$PREFIX/lib}" "${bindir:=$PREFIX/bin}" "${includedir:=$PREFIX/include}" "${datadir:=$PREFIX/share}"
: "${sysconfdir:=$etc}" "${librarydir:=$libdir}" "${mandir:=$datadir/man}" "${docdir:=$datadir/doc/dat}"
: "${conffile:=$sysconfdir/dat.conf}" "${unitdir:=$PREFIX/lib/systemd/system}" "${kitdir:=$datadir/dat/kit}"
for path in "$PREFIX/" "$libdir" "$librarydir" "$bindir" "$includedir" "$datadir" "$mandir" "$docdir" "$conffile" "$unitdir" "$kitdir"; do
    case $path in /*) ;; *) fail "'$path' is not an absolute path" ;; esac
    # pkg-config, units of systemd, and the list of installed files have these paths in them, each with a syntax of its own.
    case $1$path in
        install*[][[:space:]\"\'\\\$\`%\&\|\#\;:\*?\(\)\<\>\!{}]*) fail "'$path' has a space or a sign that pkg-config, systemd or the loader would read as their own; choose another path" ;;
    esac
done
# One line for each thing that was installed: its kind (file, folder, conf), its checksum if it is a conf, its path.
list=$datadir/dat/installed
before=$(mktemp)
now=$(mktemp)
scratch=$(mktemp)
part=
complete=no
trap finish EXIT
# An installation that ends midway leaves nothing, or what make uninstall removes if there was an earlier one.
finish() {
    [ -z "$part" ] || rm -f "$part"
    if [ $complete = no ] && [ -s "$before" ] && [ -s "$now" ]; then
        { cat "$now"; grep -vxFf "$now" "$before" || true; } | awk '!/^conf / || !conf++' >"$scratch"
        install -m 644 "$scratch" "$DESTDIR$list"
        echo "install: unfinished; install again, or make uninstall" >&2
    elif [ $complete = no ]; then
        take_away "$now"
    fi
    rm -f "$before" "$now" "$scratch"
}
[ ! -e "$DESTDIR$list" ] || cp "$DESTDIR$list" "$before"

# Notes the folder and those above it which do not exist or were made by an earlier install, and makes them.
folder() {
    [ "$1" != / ] && ! grep -qxF "folder - $1" "$now" || return 0
    [ ! -d "$DESTDIR$1" ] || grep -qxF "folder - $1" "$before" || return 0
    folder "$(dirname "$1")"
    [ -d "$DESTDIR$1" ] || mkdir -m 755 "$DESTDIR$1" 2>/dev/null || mkdir -p "$DESTDIR$1"
    echo "folder - $1" >>"$now"
}

# Fails if the path is a file of a package: its next upgrade or removal would break this installation.
not_of_a_package() {
    local owner=
    [ -z "$DESTDIR" ] && [ -e "$1" ] && ! grep -qxF "file - $1" "$before" || return 0
    # The database may have the path from before /lib became a link to /usr/lib.
    owner=$(dpkg-query -S "$1" "${1#/usr}" 2>/dev/null | head -n 1 || true)
    # rpm says on its standard output that a file is of no package.
    [ -n "$owner" ] || ! command -v rpm >/dev/null || owner=$(rpm -qf "$1" 2>/dev/null) || owner=
    [ -z "$owner" ] || fail "$1 is of a package ($owner); choose another PREFIX, or build packages, which are installed beside it (make deb, make rpm)"
}

# put MODE SOURCE PATH: a running program keeps the file that it has.
put() {
    not_of_a_package "$3"
    folder "$(dirname "$3")"
    part=$DESTDIR$3.new-
    install -m "$1" "$2" "$part"
    mv -f "$part" "$DESTDIR$3"
    echo "file - $3" >>"$now"
}
link() {
    not_of_a_package "$2"
    folder "$(dirname "$2")"
    ln -sfn "$1" "$DESTDIR$2"
    echo "file - $2" >>"$now"
}
# tree SOURCE PATH
tree() {
    local file
    while read -r file; do put 644 "$1/$file" "$2/$file"; done < <(cd "$1" && find . -type f -printf '%P\n')
}
# binary SOURCE PATH: stripped, and the debug information beside it where debuggers look for it by build id.
binary() {
    local id debug
    if [ -n "$debugdir" ]; then
        id=$(readelf -n "$1" | sed -n 's/.*Build ID: //p')
        [ -n "$id" ] || fail "$1 has no build id"
        debug=$debugdir/.build-id/${id:0:2}/${id:2}.debug
        objcopy --only-keep-debug --compress-debug-sections "$1" "$scratch"
        put 644 "$scratch" "$debug"
    fi
    if [ "$STRIP" = no ]; then cp "$1" "$scratch"; else strip -o "$scratch" "$1"; fi
    put 755 "$scratch" "$2"
}
# with SED-SCRIPT SOURCE PATH
with() {
    sed "$1" "$2" >"$scratch"
    put 644 "$scratch" "$3"
}
# Keeps a dat.conf that was changed: the new one lies beside it then.
configuration() {
    local path=$conffile sum old
    sum=$(sha256sum "$dist/etc/dat.conf" | cut -d ' ' -f 1)
    old=$(sed -n "s|^conf \([0-9a-f]*\) $path\$|\1|p" "$before")
    if [ -e "$DESTDIR$path" ] && ! echo "$old  $DESTDIR$path" | sha256sum --check --status 2>/dev/null; then
        [ -z "$old" ] || echo "conf $old $path" >>"$now"
        cmp -s "$dist/etc/dat.conf" "$DESTDIR$path" && return
        put 644 "$dist/etc/dat.conf" "$path.new"
        echo "install: $DESTDIR$path stays as it is; what this version ships is $path.new" >&2
        return
    fi
    put 644 "$dist/etc/dat.conf" "$path"
    sed -i '$d' "$now"
    echo "conf $sum $path" >>"$now"
}

# take_away LIST: removes the files, then the folders that are empty, the innermost first.
take_away() {
    local kind sum path
    while read -r kind sum path; do
        case $kind in
            file) rm -f "$DESTDIR$path" ;;
            conf)
                if [ ! -e "$DESTDIR$path" ] || echo "$sum  $DESTDIR$path" | sha256sum --check --status; then
                    rm -f "$DESTDIR$path"
                else
                    echo "install: $DESTDIR$path stays, as it was changed" >&2
                fi ;;
        esac
    done <"$1"
    sed -n 's/^folder - //p' "$1" | sort -r | while read -r path; do rmdir "$DESTDIR$path" 2>/dev/null || true; done
}

# The loader finds libraries in other folders than its own by a cache.
refresh_loader() {
    [ -z "$DESTDIR" ] || return 0
    [ "$(id -u)" != 0 ] || ldconfig
    [ "$1" = install ] || return 0
    local first
    first=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n 's/^\tlibdat2\.so\.2 .* => //p' | head -n 1)
    [ "$(realpath -m "$first")" != "$(realpath -m "$librarydir/libdat2.so.2")" ] || return 0
    echo "install: programs load ${first:-no libdat2.so.2} now. Either set LD_LIBRARY_PATH=$librarydir, or as root:" >&2
    echo "    echo $librarydir >/etc/ld.so.conf.d/00-dat.conf && ldconfig" >&2
}

if [ "$1" = uninstall ]; then
    [ -e "$DESTDIR$list" ] || fail "no $DESTDIR$list: nothing is installed with this PREFIX, DESTDIR and datadir"
    complete=yes
    take_away "$before"
    refresh_loader uninstall
    exit
fi

dist=${DAT_DIST:-${CARGO_TARGET_DIR:-target}/dist}
[ -e "$dist/lib/libdat2.so.2" ] || fail "there is no $dist; run make dist first, as the user that builds"

for library in libdat2.so.2.0.0 libdat.so.1.2.0; do binary "$dist/lib/$library" "$librarydir/$library"; done
link libdat2.so.2.0.0 "$librarydir/libdat2.so.2"
link libdat2.so.2 "$librarydir/libdat2.so"
link libdat.so.1.2.0 "$librarydir/libdat.so.1"
link libdat.so.1 "$librarydir/libdat.so"
for provider in ibverbs softrxe filter; do
    binary "$dist/lib/libdat-provider-$provider.so.2" "$libdir/libdat-provider-$provider.so.2"
done
binary "$dist/bin/dat" "$bindir/dat"
tree "$dist/include" "$includedir"
put 644 "$dist/lib/libdat_transport.a" "$libdir/libdat_transport.a"
tree "$dist/share/dat/kit" "$kitdir"
for package in dat2 dat dat-transport; do
    [ $package = dat-transport ] && at=$libdir || at=$librarydir
    with "s|^prefix=.*|prefix=$PREFIX|; s|^libdir=.*|libdir=$at|; s|-L[^ ]*|-L$at|; s|-I[^ ]*|-I$includedir|" \
        "$dist/lib/pkgconfig/$package.pc" "$libdir/pkgconfig/$package.pc"
done
tree "$dist/share/man" "$mandir"
for shell in bash-completion zsh fish; do tree "$dist/share/$shell" "$datadir/$shell"; done
tree "$dist/share/doc/dat" "$docdir"
for unit in "$dist"/share/systemd/*; do
    with "s|/usr/share/doc/dat|$docdir|; s|/usr/bin/dat|$bindir/dat|" "$unit" "$unitdir/${unit##*/}"
done
configuration
folder "$(dirname "$list")"
echo "file - $list" >>"$now"
# Files of the version before that this one has not.
grep -vxFf "$now" "$before" | grep -v '^conf ' >"$scratch" || true
take_away "$scratch"
install -m 644 "$now" "$DESTDIR$list"
complete=yes
echo "install: $(grep -c '^file' "$now") files in $DESTDIR$PREFIX; $conffile" >&2
refresh_loader install
