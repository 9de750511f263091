# Modules and network of the lab, the same in the guest and natively. Sourced; reads the settings of run.sh:
#   rxe (none|one|two), siw (yes|no), mtu, netns (yes|no)
#
#   v0 10.9.0.1/24 fd09::1/64 --- v1 10.9.0.2/24 fd09::2/64
#
# rxe=one   rxe0 on v0; v1 is only the cable's other end and has no address (an address here would be local, and bypass the cable)
# rxe=two   rxe0 on v0, rxe1 on v1, with routing rules that send v0's packets to v1 through the cable although both are local
# siw=yes   siw0 on v0, with rxe=none
# netns=yes v1 is in the namespace `peer`, where UDP port 4791 is free: rdma_rxe of Linux 6.1 and 6.12 binds it in the initial namespace only
# both      rxe=two and netns=yes: rxe1 is on v1 in `peer`, and each end has a UDP port 4791 of its own. Linux 7.2 can do that

lab_modules() {
    local module
    # crc32 first: rdma_rxe asks the kernel for it by name, and gives up when it is not there yet.
    for module in crc32_generic crc32_pclmul; do
        modprobe $module 2>/dev/null
    done
    for module in ib_uverbs rdma_ucm rdma_rxe veth; do
        modprobe $module || return
    done
    [ "$siw" = no ] || modprobe siw || return
    modprobe -a ib_umad dummy sch_netem 2>/dev/null
    return 0
}

lab_network() {
    local in_peer=
    ip link set lo up
    ip link add v0 type veth peer name v1 || return
    ip link set v0 mtu "$mtu"
    ip link set v1 mtu "$mtu"
    # Duplicate address detection would leave the IPv6 addresses unusable for the first second.
    sysctl -qw net.ipv6.conf.v0.accept_dad=0 net.ipv6.conf.v1.accept_dad=0
    if [ "$netns" = yes ]; then
        ip netns add peer || return
        ip link set v1 netns peer
        in_peer='ip netns exec peer'
        $in_peer ip link set lo up
        $in_peer sysctl -qw net.ipv6.conf.v1.accept_dad=0
    fi
    ip addr add 10.9.0.1/24 dev v0
    ip addr add fd09::1/64 dev v0 nodad
    ip link set v0 up
    if [ "$netns" = yes ] || [ "$rxe" = two ]; then
        $in_peer ip addr add 10.9.0.2/24 dev v1
        $in_peer ip addr add fd09::2/64 dev v1 nodad
    fi
    $in_peer ip link set v1 up
    case $rxe-$netns in
        one-*) lab_rxe rxe0 v0 ;;
        two-no) lab_cable && lab_rxe rxe0 v0 && lab_rxe rxe1 v1 ;;
        two-yes) lab_two_namespaces ;;
        none-*) ;;
    esac || return
    [ "$siw" = no ] || rdma link add siw0 type siw netdev v0
}

lab_rxe() {
    rdma link add "$1" type rxe netdev "$2"
}

# rdma_rxe has a socket in each namespace where a device is. Devices are visible in all namespaces ("shared"): rdma_rxe
# does not support devices that belong to one ("exclusive").
lab_two_namespaces() {
    grep -q ' rxe_ns_pernet_sk4\b' /proc/kallsyms || {
        echo "lab: rdma_rxe of Linux $(uname -r) has its port in the initial namespace only; --kernel sid has a newer one"
        return 1
    }
    lab_rxe rxe0 v0 && ip netns exec peer rdma link add rxe1 type rxe netdev v1
}

# Both ends local, yet through the cable: what arrives is looked up among the local addresses, what leaves is not.
lab_cable() {
    local family
    sysctl -qw net.ipv4.conf.{all,v0,v1}.accept_local=1 net.ipv4.conf.{all,v0,v1}.rp_filter=0 \
        net.ipv4.conf.{v0,v1}.arp_ignore=1 net.ipv4.conf.{v0,v1}.arp_announce=2
    ip route add 10.9.0.2 dev v0 src 10.9.0.1 table 90
    ip route add 10.9.0.1 dev v1 src 10.9.0.2 table 91
    ip -6 route add fd09::2 dev v0 src fd09::1 table 90
    ip -6 route add fd09::1 dev v1 src fd09::2 table 91
    for family in -4 -6; do
        ip $family rule add pref 10 iif v0 lookup local
        ip $family rule add pref 11 iif v1 lookup local
        ip $family rule add pref 20 oif v0 lookup 90
        ip $family rule add pref 21 oif v1 lookup 91
        ip $family rule add pref 100 lookup local
        ip $family rule del pref 0
    done
    ip rule add pref 30 from 10.9.0.1 to 10.9.0.2 lookup 90
    ip rule add pref 31 from 10.9.0.2 to 10.9.0.1 lookup 91
    ip -6 rule add pref 30 from fd09::1 to fd09::2 lookup 90
    ip -6 rule add pref 31 from fd09::2 to fd09::1 lookup 91
}
