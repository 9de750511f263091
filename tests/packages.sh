#!/bin/bash
# Installs target/dist as administrators do: with `make install` into prefixes of each layout, and as packages into a root
# of Debian's essential packages, beside and without Debian's DAPL. Debian's unmodified dtest runs on each. Then it is
# changed, upgraded and removed, and nothing may be left. docs/installing.md says what is expected.
#
# usage: packages.sh [prefix] [deb] [rpm]      default: prefix deb. Needs root for deb and rpm, and target/dist.
#
# Everything lies in a temporary folder, and runs in namespaces of its own for mounts, processes and the network.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${DAT_PACKAGES_ALONE:-}" != 1 ]; then
    [ "$(id -u)" = 0 ] || { echo "packages: only root may run this test (chroot)" >&2; exit 1; }
    [ -e "${CARGO_TARGET_DIR:-target}/dist/bin/dat" ] || { echo "packages: no target/dist; run make dist first" >&2; exit 1; }
    DAT_PACKAGES_ALONE=1 exec unshare --mount --mount-proc --net --pid --fork --kill-child "$0" "$@"
fi
mount --make-rprivate /
python3 - <<'UP'
# `ip link set lo up`, on machines without iproute2: SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP.
import fcntl, socket, struct
ask = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
flags = struct.unpack("16sH", fcntl.ioctl(ask, 0x8913, struct.pack("16sH14x", b"lo", 0))[:18])[1]
fcntl.ioctl(ask, 0x8914, struct.pack("16sH14x", b"lo", flags | 1))
UP

work=$(mktemp -d "${TMPDIR:-/tmp}/dat-packages.XXXXXX")
trap 'umount -R "$work"/root/* 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
triple=$(gcc -print-multiarch)
said=$work/said
checks=0
unset DAT_OVERRIDE LD_LIBRARY_PATH DAT_LOG

fail() {
    echo "packages: FAILED: $*" >&2
    [ ! -s "$said" ] || sed 's/^/    /' "$said" >&2
    exit 1
}
ok() {
    checks=$((checks + 1))
    echo "packages: ok: $*"
}

# transfer LIBRARY COMMAND...: Debian's dtest moves data between two processes that COMMAND (env or chroot) starts, over
# an IA of the dat.conf that lies there, and both have loaded LIBRARY.
transfer() {
    local library=$1 server begin=$SECONDS loaded=
    shift
    "$@" dtest -P softrxe-lo -s >"$said.server" 2>&1 &
    server=$!
    # The address is the test's own, so a client that comes too early is refused and not lost.
    until "$@" timeout -k 5 60 dtest -P softrxe-lo -h 127.0.0.1 >"$said" 2>&1; do
        loaded=$(tr '\n' ' ' <"$said.server")
        kill -0 $server 2>/dev/null && [ $((SECONDS - begin)) -lt 120 ] || fail "dtest over $library; the server said: $loaded"
        sleep 0.2
    done
    wait $server || fail "the server of dtest over $library: $(tail -n 5 "$said.server")"
    grep -q 'DAPL Test Complete. PASSED' "$said" || fail "dtest over $library"
    "$@" sh -c 'LD_TRACE_LOADED_OBJECTS=1 dtest' >"$said" 2>&1 || true
    grep -qF "=> $library " "$said" || fail "dtest does not load $library"
    : >"$said"
}

# left FOLDER: what is left there besides empty folders of the system.
left() { find "$1" -mindepth 1 "${@:2}" | sort; }

# layout NAME VARIABLE...: make install into a prefix, dtest, make uninstall.
layout() {
    local name=$1 prefix=$work/at-$1 libraries
    shift
    run() { make --no-print-directory "$1" PREFIX="$prefix" "${@:2}" >"$said" 2>&1 || fail "make $* in $name"; }
    run install "$@"
    [ -x "$prefix/bin/dat" ] && [ -e "$prefix/share/man/man1/dat.1" ] && [ -e "$prefix/share/man/man5/dat.conf.5" ] || fail "$name: no command or page"
    [ -e "$prefix/share/man/man3/dat_ep_post_send.3" ] && [ -e "$prefix/share/man/man7/udapl.7" ] || fail "$name: no page of a function"
    [ -s "$prefix/share/bash-completion/completions/dat" ] || fail "$name: no completions"
    libraries=$(dirname "$(find "$prefix" -name libdat2.so.2)")
    PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name dat2.pc)") pkg-config --cflags --libs dat2 >"$said"
    grep -qF -- "-L$libraries " "$said" && cc -Wall -Werror -o "$work/synopses" tests/c/synopses.c $(cat "$said") || fail "$name: pkg-config"
    # No variable says where dat.conf and the provider are.
    transfer "$libraries/libdat2.so.2" env LD_LIBRARY_PATH="$libraries"
    "$prefix/bin/dat" list >"$said" 2>&1
    grep -q "softrxe-lo .* yes " "$said" || fail "$name: dat list"
    run install "$@"
    [ ! -e "$prefix/etc/dat.conf.new" ] || fail "$name: a second install takes its own dat.conf for a changed one"
    echo "# mine" >>"$prefix/etc/dat.conf"
    run install "$@"
    grep -q '^# mine' "$prefix/etc/dat.conf" && [ -e "$prefix/etc/dat.conf.new" ] || fail "$name: a second install replaced a changed dat.conf"
    run uninstall "$@"
    [ "$(left "$prefix" -not -type d)" = "$prefix/etc/dat.conf" ] || fail "$name: uninstall left $(left "$prefix")"
    rm "$prefix/etc/dat.conf"
    run install "$@"
    run uninstall "$@"
    [ -z "$(left "$prefix" -not -path "$prefix/etc")" ] || fail "$name: uninstall left $(left "$prefix")"
    ok "make install, dtest, make uninstall: $name ($*)"
}

prefixes() {
    local stray before sign
    layout plain
    layout lib64 libdir="$work/at-lib64/lib64"
    layout multiarch libdir="$work/at-multiarch/lib/$triple"
    layout folder libdir="$work/at-folder/lib/$triple" librarydir="$work/at-folder/lib/$triple/dat-rdma"
    make --no-print-directory install DESTDIR="$work/staged" PREFIX=/usr libdir="/usr/lib/$triple" >"$said" 2>&1 || fail "make install DESTDIR="
    [ -e "$work/staged/etc/dat.conf" ] && ! grep -rqF "$work" "$work/staged" || fail "DESTDIR: no /etc/dat.conf, or files name DESTDIR"
    make --no-print-directory uninstall DESTDIR="$work/staged" PREFIX=/usr libdir="/usr/lib/$triple" >"$said" 2>&1
    [ -z "$(left "$work/staged")" ] || fail "uninstall left $(left "$work/staged")"
    grep -q '^FreeBind=yes$' dat-tools/systemd/*.socket || fail "a socket of an address fails at boot, before the network has the address"
    ok "make install and uninstall with DESTDIR and PREFIX=/usr leave nothing"
    # An administrator's umask is for his own files.
    (umask 077 && make --no-print-directory install DESTDIR="$work/umask" PREFIX=/usr >"$said" 2>&1) || fail "make install with umask 077"
    stray=$(find "$work/umask" -mindepth 1 -not -perm -004)
    [ -z "$stray" ] || fail "with umask 077, others may not read $stray"
    # What ends midway is removed, or can be.
    mkdir -p "$work/midway/share"
    for before in nothing installed; do
        if [ $before = installed ]; then
            make --no-print-directory install PREFIX="$work/midway" >"$said" 2>&1 || fail "make install"
            rm -r "$work/midway/share/man"
        fi
        : >"$work/midway/share/man"
        if make --no-print-directory install PREFIX="$work/midway" >"$said" 2>&1; then fail "make install over a file in a folder's place"; fi
        rm "$work/midway/share/man"
        [ $before = nothing ] || make --no-print-directory uninstall PREFIX="$work/midway" >"$said" 2>&1 || fail "make uninstall"
        [ "$(left "$work/midway")" = "$work/midway/share" ] || fail "an installation that ended midway left $(left "$work/midway")"
    done
    mkdir "$work/small"
    mount -t tmpfs -o size=4M tmpfs "$work/small"
    if make --no-print-directory install DESTDIR="$work/small" PREFIX=/usr >"$said" 2>&1; then fail "make install on a disk that is full"; fi
    stray=$(find "$work/small" -mindepth 1)
    umount "$work/small"
    [ -z "$stray" ] || fail "an installation on a disk that is full left $stray"
    ok "make install: with umask 077 everyone may read; ended midway, nothing is left"
    mkdir "$work/a b"
    (top=$PWD && cd "$work/a b" && . "$top/scripts/release-flags.sh" && [ "$CC_SHELL_ESCAPED_FLAGS" = 1 ] &&
        eval "cc $CFLAGS -c -o sleep.o $top/dat-os/src/sleep.c") >"$said" 2>&1 || fail "the flags of a release in a folder with a space"
    ok "a release is built in a folder with a space"
    # pkg-config, systemd and sed would read these in their own way.
    for sign in ' ' '&' '|' '%' '$$' '['; do
        if make --no-print-directory install PREFIX="$work/a${sign}b" >"$said" 2>&1; then fail "make install into a folder with '$sign'"; fi
        grep -q 'choose another path' "$said" || fail "make install into a folder with '$sign' fails for another reason"
    done
    ok "make install refuses paths that pkg-config or systemd would misread"
    # A file of another package must not be overwritten.
    if make --no-print-directory install PREFIX=/usr libdir="/usr/lib/$triple" >"$said" 2>&1; then fail "make install has overwritten libdapl2's library"; fi
    grep -q "is of a package (libdapl2" "$said" || fail "make install PREFIX=/usr fails for another reason"
    [ ! -e /usr/share/dat/installed ] && [ ! -e /usr/bin/dat ] || fail "make install PREFIX=/usr was begun"
    ok "make install refuses to overwrite the library of Debian's package"
}

# essential: the names of the packages that every Debian system has, and what they depend on, of this machine.
essential() {
    python3 - "$@" <<'LIST'
import re, subprocess, sys
form = "${binary:Package}\t${Essential}\t${Pre-Depends},${Depends}\t${Provides}\n"
of, wanted = {}, list(sys.argv[1:])
for line in subprocess.run(["dpkg-query", "-W", "-f", form], text=True, capture_output=True, check=True).stdout.splitlines():
    name, is_essential, depends, provides = line.split("\t")
    for also in [name.split(":")[0]] + re.findall(r"[a-z0-9][a-z0-9.+-]+(?=[ ,(]|$)", provides):
        of.setdefault(also, (name, depends))
    of[name.split(":")[0]] = (name, depends)
    if is_essential == "yes":
        wanted.append(name.split(":")[0])
found = set()
while wanted:
    name, depends = of.get(wanted.pop(), (None, ""))
    if name is None or name in found:
        continue
    found.add(name)
    wanted += [re.match(r"[a-z0-9.+-]+", one.strip())[0] for one in re.split(r"[,|]", depends) if one.strip()]
print("\n".join(sorted(found)))
LIST
}

# unpack PACKAGE...: installs packages of this machine into the root as dpkg does, without their scripts.
unpack() {
    local package
    dpkg-query -L "$@" | grep '^/' | sort -u | grep -Ev '^/\.$|^/usr/share/(doc|man|locale)/' |
        tar --create --no-recursion --ignore-failed-read --files-from=- 2>/dev/null | tar --extract --directory "$work/root" --keep-directory-symlink
    for package; do
        { dpkg-query --status "$package"; echo; } >>"$work/root/var/lib/dpkg/status"
        cp -n /var/lib/dpkg/info/"$package".{list,conffiles} "$work/root/var/lib/dpkg/info/" 2>/dev/null || true
    done
}

# repack PACKAGE: builds the .deb of a package from its installed files, so that no network is needed.
repack() {
    local tree=$work/repack/$1 info=/var/lib/dpkg/info/$1
    mkdir -p "$tree/DEBIAN"
    [ -e "$info.list" ] || info=$info:$(dpkg --print-architecture)
    dpkg-query -L "$1" | grep -v '^/\.$' | tar --create --no-recursion --files-from=- 2>/dev/null | tar --extract --directory "$tree"
    dpkg-query --status "$1" | sed -e '/^Status:/d' -e '/^Conffiles:/,/^[^ ]/{/^Conffiles:/d;/^ /d}' >"$tree/DEBIAN/control"
    for file in conffiles triggers shlibs; do [ ! -e "$info.$file" ] || cp "$info.$file" "$tree/DEBIAN/$file"; done
    dpkg-deb --root-owner-group --build "$tree" "$work/root/debs/$1.deb" >/dev/null
}

inside() { chroot "$work/root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
dpkg_inside() { inside dpkg "$@" >"$said" 2>&1 </dev/null || fail "dpkg $*"; }
# What is in the root, but for what dpkg and the loader note.
contents() {
    (cd "$work/root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./debs -o -path './var/lib/dpkg/*' -o -path ./var/log -o -path './var/cache/*' \) -prune \
        -o -not -name ld.so.cache -print | sort)
}

# A root of Debian's essential packages, from those of this machine.
clean_root() {
    local root=$work/root packages
    mkdir -p "$root"/{usr/{bin,sbin,lib,lib64},proc,dev,tmp,etc,root,run,debs,var/lib/dpkg/{info,updates}}
    for folder in bin sbin lib lib64; do [ ! -L /$folder ] || ln -s usr/$folder "$root/$folder"; done
    chmod 1777 "$root/tmp"
    : >"$root/var/lib/dpkg/status"
    mapfile -t packages < <(essential dpkg libc-bin libgcc-s1)
    unpack "${packages[@]}"
    echo root:x:0:0::/root:/bin/sh >"$root/etc/passwd"
    echo root:x:0: >"$root/etc/group"
    mkdir -p "$root/etc/ld.so.conf.d"
    # New libraries make dpkg run ldconfig: the trigger's name, and the script of the package that has it.
    cp /var/lib/dpkg/info/libc-bin.{triggers,postinst} "$root/var/lib/dpkg/info/"
    mkdir "$root/var/lib/dpkg/triggers"
    cp /var/lib/dpkg/triggers/ldconfig "$root/var/lib/dpkg/triggers/"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    inside ldconfig
    inside dpkg --audit >"$said" 2>&1 || fail "the root is not sound"
    echo "packages: a root of ${#packages[@]} packages, $(du -sxm "$root" | cut -f 1) MB"
}

# What must hold of the packages themselves.
judge_packages() {
    local trees=$work/trees file stray id own=/usr/lib/$triple/dat-rdma
    mkdir "$trees"
    for file in "$work"/debs/*.deb; do
        dpkg-deb --extract "$file" "$trees/$(basename "${file%%_*}")"
    done
    for file in "$trees/dat-rdma$own"/*.so.?.* "$trees/dat-rdma/usr/lib/$triple"/*.so.2 "$trees/dat-rdma/usr/bin/dat"; do
        stray=$(strings -a "$file" | grep -F -e "$PWD" -e "$HOME/" -e "${CARGO_HOME:-$HOME/.cargo}" -e "$(rustc --print sysroot)" | head -n 3 || true)
        [ -z "$stray" ] || fail "$file names paths of this machine: $stray"
        # No pipe to grep -q: it ends at the first match, and the writer's failure would count.
        grep -qE '\.debug_info|\.symtab' <<<"$(readelf -SW "$file")" && fail "$file is not stripped"
        id=$(readelf -n "$file" | sed -n 's/.*Build ID: //p')
        file=$trees/dat-rdma-dbgsym/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
        grep -q '\.debug_line' <<<"$(readelf -SW "$file" 2>&1)" || fail "no debug file of $id"
        stray=$(readelf --debug-dump=info "$file" 2>/dev/null | grep -F -e "$PWD" -e "$HOME/" | head -n 3 || true)
        [ -z "$stray" ] || fail "$file names paths of this machine: $stray"
    done
    file=$trees/dat-rdma$own/libdat2.so.2.0.0
    [ "$(stat -c %s "$file")" -lt 1500000 ] || fail "libdat2 has $(stat -c %s "$file") bytes"
    for file in $(dpkg-query -L libdapl2 libdapl-dev dapl2-utils); do
        [ -d "$file" ] || [ ! -e "$trees/dat-rdma$file" ] && [ -d "$file" -o ! -e "$trees/dat-rdma-dev$file" ] || fail "$file is in a package of Debian too"
    done
    file=$trees/dat-rdma-dev
    [ -e "$file/usr/share/dat-rdma/kit/dat-provider/Cargo.toml" ] && [ -e "$file/usr/share/dat-rdma/kit/examples/c-transport/sockets.c" ] &&
        [ -e "$file/usr/include/dat-rdma/dat_transport.h" ] && [ -e "$file/usr/lib/$triple/libdat_transport.a" ] || fail "dat-rdma-dev lacks the provider kit"
    [ -e "$file/usr/share/man/man3/dat_ep_post_send.3.gz" ] && [ -e "$file/usr/share/man/man7/udapl.7.gz" ] || fail "dat-rdma-dev lacks the pages of the functions"
    [ -e "$trees/dat-rdma/usr/share/doc/dat-rdma/examples/c/exchange.c" ] || fail "dat-rdma lacks the example in C"
    [ ! -e "$trees/dat-rdma/usr/share/dat-rdma" ] || fail "dat-rdma has the provider kit"
    grep -q '^libdat2 2 dat-rdma ' <<<"$(dpkg-deb --info "$work"/debs/dat-rdma_*.deb shlibs)" || fail "dat-rdma has no shlibs"
    # ISC and MIT ask that copies have the notice.
    grep -q '^libloading [0-9.]* (ISC)' "$trees/dat-rdma/usr/share/doc/dat-rdma/copyright" || fail "the licences of linked crates are missing"
    stray=$(strings -a "$file/usr/lib/$triple/libdat_transport.a" | grep -F -e "$PWD" -e "$HOME/" -e "${CARGO_HOME:-$HOME/.cargo}" | head -n 3 || true)
    [ -z "$stray" ] || fail "libdat_transport.a names paths of this machine: $stray"
    ok "packages: stripped, debug files by build id, no paths of this machine, no file of Debian's DAPL; libdat2 has $(stat -c %s "$trees/dat-rdma$own/libdat2.so.2.0.0") bytes"
}

# next_version DEB: the same package as revision 2, with another shipped dat.conf.
next_version() {
    local tree=$work/next
    dpkg-deb --raw-extract "$1" "$tree"
    sed -i 's/^\(Version: .*\)-1$/\1-2/' "$tree/DEBIAN/control"
    echo "# shipped with revision 2" >>"$tree$2"
    dpkg-deb --root-owner-group --build "$tree" "$work/root/debs/next.deb" >/dev/null
}

debs() {
    local root=$work/root own=/usr/lib/$triple/dat-rdma conf=/etc/dat.conf.d/50-dat-rdma.conf before
    scripts/packages.sh deb --to "$work/debs" 2>"$said" || fail "make deb"
    for file in "$work"/debs/*.deb; do grep -qF "$file" "$said" || fail "make deb does not name $file"; done
    mkdir "$work/again" "$work/memory"
    mount -t tmpfs tmpfs "$work/memory"
    touch "$work/again/other_1_all.deb"
    # A language that sorts in another order, if this machine has it.
    mkdir "$work/locales"
    localedef -i en_US -f UTF-8 "$work/locales/en_US.UTF-8" 2>"$said" || true
    (umask 077 && export LOCPATH=$work/locales LC_ALL=en_US.UTF-8 TMPDIR=$work/memory && scripts/packages.sh deb --to "$work/again" 2>"$said") ||
        fail "make deb with umask 077"
    [ -e "$work/again/other_1_all.deb" ] || fail "make deb removed the package of another project"
    for file in "$work"/debs/*.deb; do cmp "$file" "$work/again/$(basename "$file")" >"$said" 2>&1 || fail "two builds of a package differ"; done
    umount "$work/memory"
    ok "make deb on another file system, in another language, with umask 077, gives the same bytes, and leaves packages of other projects"
    judge_packages
    clean_root
    cp "$work"/debs/dat-rdma_*.deb "$root/debs/dat-rdma.deb"
    repack dapl2-utils
    repack libdapl2
    contents >"$work/before"

    # Alone: Debian's clients accept the package in libdapl2's place, and there is no libibverbs.
    dpkg_inside --install /debs/dat-rdma.deb /debs/dapl2-utils.deb
    [ ! -e "$root/usr/lib/$triple/libibverbs.so.1" ] || fail "the root has libibverbs"
    transfer "$own/libdat2.so.2" inside
    inside dat list >"$said" 2>&1
    grep -q 'softrxe-lo .* yes ' "$said" || fail "dat list in the root"
    ok "a clean root: dtest runs, without libdapl2 and without libibverbs"

    # Beside Debian's.
    mapfile -t packages < <(essential libibverbs1 librdmacm1 | grep -vxFf <(dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${binary:Package}\n'))
    unpack "${packages[@]}"
    dpkg_inside --install /debs/libdapl2.deb
    dpkg --root="$root" --verify libdapl2 >"$said" 2>&1 && [ ! -s "$said" ] || fail "files of libdapl2 are changed"
    transfer "$own/libdat2.so.2" inside
    inside dat list --json >"$said"
    python3 - "$said" <<'NAMES' || fail "names of Debian's dat.conf do not lead to Debian's provider"
import sys
text = open(sys.argv[1]).read()
assert "libdaplofa.so.2" in text and "softrxe-lo" in text, text
NAMES
    inside dat info ofa-v2-ib0 >"$said" 2>&1 || true
    grep -q "/etc/dat.conf" "$said" || fail "ofa-v2-ib0 is not that of Debian's dat.conf"
    sed -i 's|^/|#/|' "$root/etc/ld.so.conf.d/00-dat-rdma.conf"
    inside ldconfig
    inside sh -c 'LD_TRACE_LOADED_OBJECTS=1 dtest' >"$said" 2>&1
    grep -qE "=> (/usr)?/lib/$triple/libdat2.so.2 " "$said" || fail "the line in ld.so.conf.d does not switch"
    sed -i 's|^#/|/|' "$root/etc/ld.so.conf.d/00-dat-rdma.conf"
    inside ldconfig
    ok "beside Debian's libdapl2: its files and names stay, one line switches between the libraries"

    # Upgrade.
    echo "mine u2.0 threadsafe default libdat-provider-softrxe.so.2 dapl.2.0 \"lo 0 engine=user\" \"\"" >>"$root$conf"
    next_version "$work"/debs/dat-rdma_*.deb $conf
    dpkg_inside --force-confdef --force-confold --install /debs/next.deb
    [ "$(inside dpkg-query -W -f '${Version}' dat-rdma)" = "$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)-2" ] || fail "no upgrade"
    grep -q '^mine ' "$root$conf" && grep -q 'revision 2' "$root$conf.dpkg-dist" || fail "the upgrade has replaced a changed dat.conf"
    transfer "$own/libdat2.so.2" inside
    ok "an upgrade keeps a changed dat.conf"

    # Removal.
    dpkg_inside --remove dat-rdma
    [ -e "$root$conf" ] && [ ! -e "$root$own" ] || fail "remove"
    inside sh -c 'LD_TRACE_LOADED_OBJECTS=1 dtest' >"$said" 2>&1
    grep -qE "=> (/usr)?/lib/$triple/libdat2.so.2 " "$said" || fail "Debian's library is not found after the removal"
    dpkg_inside --purge dat-rdma dapl2-utils libdapl2
    contents >"$work/after"
    dpkg-query -L "${packages[@]}" | sed 's/^/./' | sort -u >"$work/unpacked"
    before=$(comm -13 "$work/before" "$work/after" | grep -vxFf "$work/unpacked" | grep -vxFf <(sed -E 's,^\./(s?bin|lib|lib64)/,./usr/\1/,' "$work/unpacked") || true)
    [ -z "$before" ] || fail "left after the removal: $before"
    ok "removed: dtest has Debian's library again; purged: nothing is left"
}

rpms() {
    local root=$work/rpmroot conf=/etc/rdma/dat.conf.d/50-dat-rdma.conf
    scripts/packages.sh rpm --to "$work/rpms" 2>"$said" || fail "make rpm"
    for file in "$work"/rpms/*.rpm; do grep -qF "$file" "$said" || fail "make rpm does not name $file"; done
    (umask 077 && unshare --uts sh -c 'hostname elsewhere; scripts/packages.sh rpm --to "$1"' sh "$work/rpms2") 2>"$said" || fail "make rpm with umask 077"
    for file in "$work"/rpms/*.rpm; do cmp "$file" "$work/rpms2/$(basename "$file")" >"$said" 2>&1 || fail "two builds of a package differ"; done
    rm -r "$work/rpms2"
    scripts/packages.sh rpm --to "$work/rpms2" --revision 2 2>"$said" || fail "make rpm"
    mkdir -p "$root"
    rpm_in() { rpm --root "$root" --nodeps --noscripts "$@" >"$said" 2>&1 || fail "rpm $*"; }
    rpm_in --install "$work"/rpms/dat-rdma-[0-9]*.rpm "$work"/rpms/dat-rdma-devel-*.rpm
    rpm --root "$root" --query --provides dat-rdma >"$said"
    grep -q '^libdat2.so.2()(64bit)' "$said" || fail "the package does not provide libdat2.so.2"
    # This machine's loader and C library, with the package's files.
    transfer "$root/usr/lib64/dat-rdma/libdat2.so.2" env LD_LIBRARY_PATH="$root/usr/lib64/dat-rdma" DAT_OVERRIDE="$root$conf"
    echo "# mine" >>"$root$conf"
    rpm_in --upgrade "$work"/rpms2/dat-rdma-[0-9]*.rpm "$work"/rpms2/dat-rdma-devel-*.rpm
    grep -q '^# mine' "$root$conf" || fail "the upgrade has replaced a changed dat.conf"
    rpm_in --erase dat-rdma dat-rdma-devel
    # The changed file stays under another name, and so does its folder.
    [ -e "$root$conf.rpmsave" ] || fail "the removal has removed a changed dat.conf"
    left=$(cd "$root" && find . -path ./root -prune -o -path ./var -prune -o -path ./etc/rdma -prune -o \( -not -type d -o -path '*dat-rdma*' \) -print)
    [ -z "$left" ] || fail "left after the removal: $left"
    ok "rpm: installed, dtest, upgraded with a changed dat.conf, removed"
}

begin=$SECONDS
for part in ${*:-prefix deb}; do
    case $part in
        prefix) prefixes ;;
        deb) debs ;;
        rpm) rpms ;;
        *) fail "unknown part '$part'" ;;
    esac
done
echo "packages: $checks checks passed in $((SECONDS - begin)) s"
