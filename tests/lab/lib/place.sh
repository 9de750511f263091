# Where a command can meet RDMA. Sourced by run.sh.

# Prints native or qemu.
lab_place() {
    case ${DAT_LAB:-auto} in
        native | qemu) echo "$DAT_LAB"; return ;;
        auto) ;;
        *) say "DAT_LAB=$DAT_LAB: it may be native or qemu"; return 1 ;;
    esac
    # Inside the guest already: a lab started by a test that runs in the lab.
    if [ -n "${DAT_LAB_PLACE:-}" ] || lab_has_device || lab_can_make_device; then
        echo native
    else
        echo qemu
    fi
}

lab_has_device() { compgen -G '/sys/class/infiniband/*' >/dev/null; }

# root, a kernel that has rdma_rxe, and the command that makes devices.
lab_can_make_device() {
    [ "$(id -u)" = 0 ] && command -v rdma >/dev/null && { [ -d /sys/module/rdma_rxe ] || modprobe -q rdma_rxe 2>/dev/null; }
}
