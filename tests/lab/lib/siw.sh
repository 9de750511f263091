# The kernel module siw (software iWARP), which Debian's kernel comes without. Sourced by run.sh after image.sh.
#
# It is built once from Debian's kernel source against the headers of the guest's kernel, and kept in the cache among that kernel's
# modules. No package is installed but what bootstrap.sh installs for compiling.

# siw_prepare CACHE: the guest's `modprobe siw` finds the module. Needs $modules and $kernel, of image_prepare.
siw_prepare() {
    local cache=$1 extra=$modules/lib/modules/$kernel/extra
    exec 8>"$cache/lock"
    flock 8 # several labs may start at once on an empty cache
    [ -e "$extra/siw.ko" ] || siw_build "$cache" "$extra" || return
    exec 8>&-
}

siw_build() {
    local cache=$1 extra=$2 tmp verdict
    "$top/scripts/bootstrap.sh" siw || return
    tmp=$(mktemp -d "$cache/siw.XXXXXX") && chmod 755 "$tmp"
    say "building the module siw for $kernel (once; fetches 150 MB of kernel source and headers)"
    # The module comes last: it stands for a list of modules that names it.
    siw_sources "$tmp" && siw_compile "$tmp" && mkdir -p "$extra" && cp "$tmp/siw/siw.ko" "$extra/siw.new.ko" &&
        mv "$extra/siw.new.ko" "$extra/siw.ko" && { depmod -b "$modules" "$kernel" || { rm "$extra/siw.ko"; false; }; }
    verdict=$?
    rm -rf "$tmp"
    return $verdict
}

# Leaves the headers under TMP/usr and the driver's source in TMP/siw.
siw_sources() {
    local tmp=$1 series=${kernel%%-*} package
    series=${series%.*} # 6.1.0-56-amd64: the series is 6.1
    for package in "linux-headers-$kernel" "linux-headers-${kernel%-*}-common" "linux-kbuild-$series" "linux-source-$series"; do
        (cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root download "$package" >&2) || {
            say "apt-get could not download $package. If the archive has moved to a newer kernel, remove $cache and run" \
                "'apt-get update': the lab then fetches that kernel"
            return 1
        }
        case $package in
            linux-source-*)
                dpkg-deb --fsys-tarfile "$tmp/$package"_*.deb | tar -xO ./usr/src/linux-source-"$series".tar.xz |
                    tar -xJ -C "$tmp" --strip-components=4 "linux-source-$series/drivers/infiniband/sw/siw" ;;
            *) dpkg-deb -x "$tmp/$package"_*.deb "$tmp" ;;
        esac || { say "cannot unpack $package"; return 1; }
        rm "$tmp/$package"_*.deb
    done
}

siw_compile() {
    local tmp=$1 headers=$1/usr/src/linux-headers-$kernel
    # Debian's makefile names the common headers by the path of an installation.
    echo "include $tmp/usr/src/linux-headers-${kernel%-*}-common/Makefile" >"$headers/Makefile"
    make -s -C "$headers" M="$tmp/siw" CONFIG_RDMA_SIW=m modules >"$tmp/log" 2>&1 && [ -e "$tmp/siw/siw.ko" ] || {
        say "siw does not compile:"
        tail -n 20 "$tmp/log" >&2
        return 1
    }
    strip --strip-debug "$tmp/siw/siw.ko"
}
