//! Any host can send an ICMP message that states a small path MTU, with the address of any router, and the kernel believes one that names a
//! bound socket. Needs CAP_NET_RAW; without it the test says so and tests nothing.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use softrxe_port::socket::Socket;

const LOCAL: Ipv4Addr = Ipv4Addr::new(127, 77, 20, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(127, 77, 20, 2);
/// The longest packet of an engine.
const LENGTH: u16 = 4200;

/// Returns the checksum of the internet.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns an IPv4 packet whose header states `length` bytes after it.
fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, length: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + length).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// Returns "fragmentation needed" for a datagram of `from` to `to`, with this MTU.
fn fragmentation_needed(from: SocketAddrV4, to: SocketAddrV4, mtu: u16) -> Vec<u8> {
    let length = 8 + LENGTH;
    let udp = [from.port(), to.port(), length, 0];
    let udp: Vec<u8> = udp.iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(ipv4(*from.ip(), *to.ip(), 17, length, &udp));
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Sends an ICMP message to `to`, as a router would.
fn send_icmp(to: Ipv4Addr, message: &[u8]) -> io::Result<()> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: a plain system call.
    let fd = unsafe { libc::socket(libc::AF_INET, kind, libc::IPPROTO_RAW) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor without another owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let router = Ipv4Addr::new(127, 77, 20, 3);
    let packet = ipv4(router, to, 1, message.len() as u16, message);
    let name = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(to.octets()),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: packet and name live until the call returns, and have the lengths given.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            (&raw const name).cast(),
            size_of_val(&name) as libc::socklen_t,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[test]
fn a_forged_path_mtu_does_not_stop_the_packets_of_an_engine() {
    let socket = Socket::bind(LOCAL.into(), 0, 1 << 20).unwrap();
    let peer = UdpSocket::bind((PEER, 0)).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let to = peer.local_addr().unwrap();
    let bytes = [7_u8; LENGTH as usize];
    let send = || {
        let pieces = [libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        }];
        // SAFETY: the array outlives the call.
        unsafe { socket.send(&to, &pieces, None) }
    };
    send().unwrap();
    let (SocketAddr::V4(from), SocketAddr::V4(at)) = (socket.local(), to) else {
        unreachable!()
    };
    match send_icmp(LOCAL, &fragmentation_needed(from, at, 552)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            dat_untested::untested("it takes CAP_NET_RAW");
            return;
        }
        sent => sent.unwrap(),
    }
    send().unwrap();
    let mut buffer = [0; 8192];
    for _ in 0..2 {
        assert_eq!(peer.recv(&mut buffer).unwrap(), bytes.len());
    }
}

/// The value is the same number in both families.
#[test]
fn sockets_of_both_families_keep_to_the_mtu_of_the_netdev() {
    for (ip, level, name) in [
        ("127.0.0.1", libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
        ("::1", libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    ] {
        let socket = Socket::bind(ip.parse().unwrap(), 0, 1 << 16).unwrap();
        let mut value: libc::c_int = 0;
        let mut length = size_of_val(&value) as libc::socklen_t;
        // SAFETY: `value` has room for `length` bytes.
        let got = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                level,
                name,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        assert_eq!((got, value), (0, libc::IP_PMTUDISC_PROBE), "{ip}");
    }
}
