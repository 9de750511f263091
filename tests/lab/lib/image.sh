# The guest's kernel and initramfs, made once and cached. Sourced by run.sh.
#
# Leaves in the cache: kernel or kernel-NAME, with boot/vmlinuz-* and lib/modules/*, unpacked from Debian's packages (never
# installed: this machine keeps its own kernel), and initramfs-VERSION-HASH, rebuilt when the kernel, busybox or guest/init changes.

# image_prepare CACHE GUEST NAME: sets $vmlinuz, $initramfs, $modules (a root for `modprobe -d`) and $kernel (its release).
# NAME selects the kernel: empty for the one of this machine's Debian, a suite of Debian, or a package.
image_prepare() {
    local cache=$1 guest=$2 suite=
    mkdir -p "$cache"
    exec 8>"$cache/lock"
    flock 8 # several labs may start at once on an empty cache
    # A package has its version in its name.
    case $3 in linux-image-* | '') ;; *) suite=$3 ;; esac
    image_kernel "$cache" "$3" || return
    image_initramfs "$cache" "$guest" || return
    exec 8>&-
}

image_kernel() {
    local cache=$1 package=$2 tmp
    modules=$cache/kernel${2:+-$2}
    if [ ! -e "$modules/complete" ]; then
        image_lists "$cache" || return
        [ -n "$package" ] && [ -z "$suite" ] || package=$(image_kernel_package)
        [ -n "$package" ] || { say "apt knows no linux-image-amd64 of ${suite:-this Debian}: run 'apt-get update', or name another kernel"; return 1; }
        say "fetching $package (70 to 110 MB, once) into $modules"
        tmp=$(mktemp -d "$cache/fetch.XXXXXX") && chmod 755 "$tmp"
        (cd "$tmp" && image_apt apt-get -qq download "$package" $(image_parts "$package") >&2) ||
            { rm -rf "$tmp"; say "apt-get could not download $package"; return 1; }
        image_unpack "$tmp" || { rm -rf "$tmp"; say "cannot unpack $package"; return 1; }
        touch "$tmp/root/complete"
        rm -rf "$modules"
        mv "$tmp/root" "$modules"
        rm -rf "$tmp"
    fi
    kernel=$(ls "$modules/lib/modules")
    vmlinuz=$modules/boot/vmlinuz-$kernel
    [ -e "$modules/lib/modules/$kernel/modules.dep" ] || depmod -b "$modules" "$kernel"
}

# image_unpack FOLDER: its packages' kernel and modules go to FOLDER/root.
image_unpack() {
    local package root=$1/root
    mkdir "$root"
    for package in "$1"/*.deb; do
        # The rest of the 300 MB is drivers for hardware that no guest has.
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --wildcards --no-anchored \
            'vmlinuz*' 'boot/config-*' modules.builtin modules.builtin.modinfo modules.order \
            'kernel/arch/*' 'kernel/crypto/*' 'kernel/lib/*' 'kernel/net/*' 'kernel/mm/*' 'kernel/fs/*' \
            'kernel/drivers/infiniband/*' 'kernel/drivers/virtio/*' 'kernel/drivers/char/*' 'kernel/drivers/net/*.ko*' \
            2>"$1/log" || grep -vE 'Not found in archive|Exiting with failure' "$1/log" | sed 's/^/lab: /' >&2
    done
    # Newer releases have one /usr, and the kernel beside its modules.
    [ ! -d "$root/usr/lib/modules" ] || { mkdir -p "$root/lib" && mv "$root/usr/lib/modules" "$root/lib/modules"; } || return
    local release=$(ls "$root/lib/modules")
    [ -e "$root/boot/vmlinuz-$release" ] || { mkdir -p "$root/boot" && mv "$root/lib/modules/$release/vmlinuz" "$root/boot/vmlinuz-$release"; } || return
    # Under emulation a compressed module takes long to load, and busybox may not know how.
    find "$root/lib/modules" -name '*.ko.xz' -exec xz -d -T 0 {} +
}

# image_apt COMMAND...: an apt command; where a suite is asked for, with lists of that suite, which lie in the cache.
image_apt() {
    local command=$1 elsewhere=()
    shift
    [ -z "$suite" ] || elsewhere=(-o Dir::Etc::SourceList="$cache/apt-$suite/sources.list" -o Dir::Etc::SourceParts=/nonexistent
        -o Dir::State::Lists="$cache/apt-$suite/lists" -o Dir::Cache="$cache/apt-$suite/cache" -o Acquire::Languages=none)
    "$command" "${elsewhere[@]}" -o APT::Sandbox::User=root "$@"
}

# image_lists CACHE: fetches the lists of packages of the suite, from the archive that this machine takes Debian from.
image_lists() {
    local cache=$1 archive
    [ -n "$suite" ] || return 0
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/*$' | head -n 1)
    [ -n "$archive" ] || { say "apt names no archive of Debian, so that the suite $suite cannot be reached"; return 1; }
    mkdir -p "$cache/apt-$suite"/{lists/partial,cache/archives/partial}
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $suite main" >"$cache/apt-$suite/sources.list"
    image_apt apt-get -qq update >&2 || { say "apt-get found no suite $suite in $archive"; return 1; }
}

# The versioned package behind linux-image-amd64: the cloud and real-time flavours lack rdma_rxe.
image_kernel_package() {
    local found
    found=$(image_depends linux-image-amd64 '^linux-image-')
    if [ -z "$found" ] && [ -z "$suite" ] && [ "$(id -u)" = 0 ]; then
        apt-get -qq update >&2
        found=$(image_depends linux-image-amd64 '^linux-image-')
    fi
    echo "$found"
}

# Packages that newer releases took out of linux-image-*.
image_parts() { image_depends "$1" '^linux-(base-[0-9]|binary-|modules-)'; }

# image_depends PACKAGE REGEX: prints those of the package's dependencies that match.
image_depends() {
    image_apt apt-cache depends "$1" 2>/dev/null | awk -v wanted="$2" '$1 == "Depends:" && $2 ~ wanted { print $2 }'
}

# busybox, guest/init, and the modules that reach the host's files; everything else comes from there.
image_initramfs() {
    local cache=$1 guest=$2 key tree module
    key=$(cat "$guest/init" /bin/busybox "$vmlinuz" | sha256sum | cut -c1-16)
    initramfs=$cache/initramfs-$kernel-$key
    [ -e "$initramfs" ] && return
    tree=$(mktemp -d "$cache/initramfs.XXXXXX")
    mkdir -p "$tree"/{bin,proc,sys,dev,host,scratch,newroot,modules}
    cp /bin/busybox "$tree/bin/"
    install -m 755 "$guest/init" "$tree/init"
    modprobe -d "$modules" -S "$kernel" --show-depends -a virtio_pci 9pnet_virtio 9p overlay |
        awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
        while read -r module; do
            cp "$module" "$tree/modules/"
            basename "$module" >>"$tree/modules/order"
        done
    rm -f "$cache/initramfs-$kernel"-*
    (cd "$tree" && find . | cpio -o -H newc --quiet) | gzip -1 >"$tree.gz"
    mv "$tree.gz" "$initramfs"
    rm -rf "$tree"
}
