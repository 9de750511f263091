#!/bin/bash
# Builds packages from target/dist: dat-rdma (libraries, providers, command and its manual pages), dat-rdma-dev (headers, their manual pages,
# links, pkg-config, the provider kit) and dat-rdma-dbgsym or -debuginfo (debug files). `make deb` and `make rpm` run it. docs/installing.md says
# what lies where, and why.
#
# usage: packages.sh deb|rpm [--to DIR] [--revision N]       default: target/packages, 1
set -euo pipefail
# Modes of folders and of files that are written here are those of the packages.
umask 022
# The order of lists is that of bytes, in every language.
export LC_ALL=C
cd "$(dirname "$0")/.."

say() { echo "packages: $*" >&2; }
fail() { say "$*"; exit 1; }
kind=${1:-}
case $kind in deb | rpm) shift ;; *) fail "usage: packages.sh deb|rpm [--to DIR] [--revision N]" ;; esac
target=${CARGO_TARGET_DIR:-target}
to=$target/packages
revision=1
while [ $# -gt 1 ]; do
    case $1 in
        --to) to=$2 ;;
        --revision) revision=$2 ;;
        *) break ;;
    esac
    shift 2
done
[ $# = 0 ] || fail "unknown argument '$1'"
[ -e "$target/dist/lib/libdat2.so.2" ] || fail "there is no $target/dist; run make dist first"
mkdir -p "$to"
to=$(realpath "$to")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
maintainer="The DAT in Rust contributors <root@localhost>"
summary="uDAPL/DAT: RDMA through a transport-neutral API"
description="Libraries libdat2.so.2 (uDAPL 2.0) and libdat.so.1 (1.2), which existing DAT
programs load, providers for verbs devices and for Soft-RoCE with or without
the kernel's module, and the command dat."
# Files have the time of the last commit, also for root in a user's clone, so the same source gives the same package. An archive without
# git's folder has that time on its files.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export SOURCE_DATE_EPOCH

# The two C libraries lie in a folder of their own, before the system's in the loader's order: DAPL's package has files of
# the same names, and stays whole. So do headers and the links for -ldat2. Providers and the command have names of their own.
own=dat-rdma
etc=/etc/dat.conf.d
case $kind in
    deb) libdir=/usr/lib/$(gcc -print-multiarch) ;;
    # Red Hat's DAPL has /etc/rdma/dat.conf, which a file in /etc would hide.
    rpm) libdir=/usr/lib64 etc=/etc/rdma/dat.conf.d ;;
esac
say "stripping $target/dist into debug files and the rest"
all=$work/all
PREFIX=/usr DESTDIR=$all libdir=$libdir librarydir=$libdir/$own includedir=/usr/include/$own docdir=/usr/share/doc/$own kitdir=/usr/share/$own/kit \
    conffile=$etc/50-$own.conf debugdir=/usr/lib/debug STRIP=yes scripts/install.sh install 2>/dev/null
rm -r "$all/usr/share/dat"
# DAPL's package has a page of this name in section 5 too; man finds both.
sed '/^\.TH/s/ 5 / 5dat /' "$all/usr/share/man/man5/dat.conf.5" >"$all/usr/share/man/man5/dat.conf.5dat"
rm "$all/usr/share/man/man5/dat.conf.5"
gzip -9n "$all"/usr/share/man/man*/*
mkdir -p "$all/etc/ld.so.conf.d"
printf '# Programs load libdat2.so.2 and libdat.so.1 of dat-rdma. To have those of another package again, put a # before the\n# next line and run ldconfig.\n%s\n' \
    "$libdir/$own" >"$all/etc/ld.so.conf.d/00-$own.conf"
find "$all" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +

# part NAME PATH...: moves paths of the whole tree into the tree of a package.
part() {
    local name=$1 path
    shift
    for path; do
        mkdir -p "$work/$name$(dirname "$path")"
        mv "$all$path" "$work/$name$path"
    done
}
part debug /usr/lib/debug
part dev /usr/include /usr/share/man/man3 /usr/share/man/man7 "/usr/share/$own" "$libdir/libdat_transport.a" "$libdir/pkgconfig" "$libdir/$own/libdat2.so" "$libdir/$own/libdat.so"
mv "$all" "$work/main"

# The least version of glibc with all symbols that the files import.
glibc() {
    find "$work/main" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec objdump -T {} + 2>/dev/null |
        grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1
}

# Kilobytes by dpkg's rule, which no file system changes: each file rounded up, one for each folder and link.
installed_size() { find "$1" -path "$1/DEBIAN" -prune -o -printf '%y %s\n' | awk '{ sum += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print sum }'; }

# deb TREE PACKAGE FIELD...: builds one package. A line that begins with "Description:" ends the fields.
deb() {
    local tree=$work/$1 name=$2 field
    shift 2
    say "packing $name"
    mkdir -p "$tree/DEBIAN" "$tree/usr/share/doc"
    [ "$name" = $own ] || ln -s $own "$tree/usr/share/doc/$name"
    {
        printf '%s\n' "Package: $name" "Version: $version-$revision" "Architecture: $(dpkg --print-architecture)" \
            "Maintainer: $maintainer" "Priority: optional" "Installed-Size: $(installed_size "$tree")"
        for field; do echo "$field"; done
        echo "$description" | sed 's/^/ /'
    } >"$tree/DEBIAN/control"
    (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    (cd "$tree" && [ ! -d etc ] || find etc -type f -printf '/%p\n' | sort >DEBIAN/conffiles)
    dpkg-deb --root-owner-group --build "$tree" "$to/${name}_$version-${revision}_$(dpkg --print-architecture).deb" >/dev/null
}

build_deb() {
    {
        echo "DAT in Rust is licensed under MIT or Apache-2.0, as you choose. The second is in /usr/share/common-licenses/Apache-2.0; the first:"
        echo
        cat LICENSE-MIT
        echo
        cat "$work/main/usr/share/doc/$own/third-party/crates.txt"
    } >"$work/main/usr/share/doc/$own/copyright"
    # Debian's rule: only programs are executable.
    find "$work/main/usr/lib" -name '*.so.*' -type f -exec chmod 644 {} +
    mkdir -p "$work/main/DEBIAN"
    # Packages of programs that are linked with these get a dependency by it (dpkg-shlibdeps).
    printf '%s\n' "libdat2 2 $own (>= $version)" "libdat 1 $own (>= $version)" >"$work/main/DEBIAN/shlibs"
    echo "activate-noawait ldconfig" >"$work/main/DEBIAN/triggers"
    # Holders of the port go on with the files that they have until they are restarted; a removal ends them.
    printf '#!/bin/sh\nset -e\n[ "$1" != remove ] || [ ! -d /run/systemd/system ] || systemctl stop "dat-serve-port@*" || true\n' >"$work/main/DEBIAN/prerm"
    printf '#!/bin/sh\nset -e\n[ ! -d /run/systemd/system ] || systemctl daemon-reload || true\n' >"$work/main/DEBIAN/postinst"
    cp "$work/main/DEBIAN/postinst" "$work/main/DEBIAN/postrm"
    chmod 755 "$work/main/DEBIAN"/{prerm,postinst,postrm}
    # dapl2-utils and others depend on libdapl2 for its libdat2.so.2, which this package provides beside it. It conflicts
    # with nothing.
    deb main $own "Section: libs" "Depends: libc6 (>= $(glibc)), libgcc-s1" "Recommends: libibverbs1, librdmacm1" \
        "Suggests: dapl2-utils, ibverbs-providers" "Provides: libdapl2" "Description: $summary"
    deb dev $own-dev "Section: libdevel" "Depends: $own (= $version-$revision)" "Description: $summary, development files"
    deb debug $own-dbgsym "Section: debug" "Depends: $own (= $version-$revision)" "Description: $summary, debug files"
}

# files TREE: the list of a package's files for rpmbuild, with the folders that no other package has.
files() {
    (cd "$work/$1" && find . -mindepth 1 -not -type d -printf '/%P\n') | sed -e 's|^/etc/.*|%config(noreplace) &|'
    (cd "$work/$1" && find . -type d -printf '%%dir /%P\n') | grep -E "/$own|/dat\.conf\.d|/lib/debug" || true
}

build_rpm() {
    command -v rpmbuild >/dev/null || fail "no rpmbuild; on Debian: apt-get install rpm"
    mkdir -p "$work/root"
    for tree in main dev debug; do cp -a "$work/$tree/." "$work/root/"; done
    cat >"$work/spec" <<SPEC
%define _build_id_links none
%define debug_package %{nil}
%define __os_install_post %{nil}
Name: $own
Version: $version
Release: $revision
Summary: $summary
License: MIT OR Apache-2.0
Recommends: libibverbs librdmacm

%description
$description

%package devel
Summary: $summary, development files
Requires: $own = $version-$revision
%description devel
$description

%package debuginfo
Summary: $summary, debug files
Requires: $own = $version-$revision
%description debuginfo
$description

%install
cp -a $work/root/. %{buildroot}/

%post
[ ! -x /sbin/ldconfig ] || /sbin/ldconfig || :
[ ! -d /run/systemd/system ] || systemctl daemon-reload || :

%preun
[ \$1 != 0 ] || [ ! -d /run/systemd/system ] || systemctl stop 'dat-serve-port@*' || :

%postun
[ ! -x /sbin/ldconfig ] || /sbin/ldconfig || :
[ ! -d /run/systemd/system ] || systemctl daemon-reload || :

%files
$(files main)

%files devel
$(files dev)

%files debuginfo
$(files debug)
SPEC
    say "packing $own, $own-devel and $own-debuginfo (rpmbuild says nothing meanwhile)"
    rpmbuild --quiet -bb --define "_topdir $work/rpm" --define "_rpmdir $work/rpms" \
        --define "_buildhost localhost" --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" "$work/spec" >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; fail "rpmbuild failed"; }
    find "$work/rpms" -name '*.rpm' -exec cp -t "$to" {} +
}

# Of ours only: others may have packages in that folder.
rm -f "$to/$own"[-_]*."$kind"
"build_$kind"
say "written:"
find "$to" -maxdepth 1 -name "$own[-_]*.$kind" -printf '  %p  %s bytes\n' | sort >&2
