# The guest's kernel and initramfs, made once and cached. Sourced by run.sh.
#
# Leaves in the cache: KERNEL/{boot/vmlinuz-*,lib/modules/*}, unpacked from Debian's package (never installed: this machine keeps its
# own kernel), and initramfs-VERSION-HASH, rebuilt when the kernel, busybox or guest/init changes.

# image_prepare: sets $vmlinuz, $initramfs, $modules (a root for `modprobe -d`) and $kernel (its release).
image_prepare() {
    local cache=$1 guest=$2
    mkdir -p "$cache"
    exec 8>"$cache/lock"
    flock 8 # several labs may start at once on an empty cache
    image_kernel "$cache" || return
    image_initramfs "$cache" "$guest" || return
    exec 8>&-
}

image_kernel() {
    local cache=$1 package tmp
    if [ ! -e "$cache/kernel/complete" ]; then
        package=${DAT_LAB_KERNEL:-$(image_kernel_package)}
        [ -n "$package" ] || { say "apt knows no linux-image-amd64: run 'apt-get update', or name a kernel package in DAT_LAB_KERNEL"; return 1; }
        say "fetching $package (70 MB, once) into $cache"
        tmp=$(mktemp -d "$cache/fetch.XXXXXX") && chmod 755 "$tmp"
        (cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root download "$package" >&2) ||
            { rm -rf "$tmp"; say "apt-get could not download $package"; return 1; }
        # The rest of the 300 MB is drivers for hardware that no guest has.
        mkdir "$tmp/root"
        dpkg-deb --fsys-tarfile "$tmp"/*.deb | tar -x -C "$tmp/root" --wildcards --no-anchored \
            'boot/vmlinuz-*' 'boot/config-*' modules.builtin modules.builtin.modinfo modules.order \
            'kernel/arch/*' 'kernel/crypto/*' 'kernel/lib/*' 'kernel/net/*' 'kernel/mm/*' 'kernel/fs/*' \
            'kernel/drivers/infiniband/*' 'kernel/drivers/virtio/*' 'kernel/drivers/char/*' 'kernel/drivers/net/*.ko' ||
            { rm -rf "$tmp"; say "cannot unpack $package"; return 1; }
        touch "$tmp/root/complete"
        rm -rf "$cache/kernel"
        mv "$tmp/root" "$cache/kernel"
        rm -rf "$tmp"
    fi
    modules=$cache/kernel
    kernel=$(ls "$modules/lib/modules")
    vmlinuz=$modules/boot/vmlinuz-$kernel
    [ -e "$modules/lib/modules/$kernel/modules.dep" ] || depmod -b "$modules" "$kernel"
}

# The versioned package behind linux-image-amd64: the cloud and real-time flavours lack rdma_rxe.
image_kernel_package() {
    local found
    found=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }')
    if [ -z "$found" ] && [ "$(id -u)" = 0 ]; then
        apt-get -qq update >&2
        found=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }')
    fi
    echo "$found"
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
    rm -f "$cache"/initramfs-*
    (cd "$tree" && find . | cpio -o -H newc --quiet) | gzip -1 >"$tree.gz"
    mv "$tree.gz" "$initramfs"
    rm -rf "$tree"
}
