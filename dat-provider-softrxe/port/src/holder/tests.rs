use super::*;
use crate::discard::threads;
use crate::names::{connect_exact, system_name};

/// A thread closes them where the kernel refuses no descriptors.
#[test]
fn processes_that_are_not_admitted_are_closed_together() {
    let ip = "127.61.9.7".parse().unwrap();
    let socket = Socket::bind(ip, crate::ROCE_PORT, 1 << 16).unwrap();
    let quotas = Quotas {
        members_per_user: 0,
        ..Quotas::default()
    };
    let mut holder = Holder::for_all_users(ip, socket.into(), quotas).unwrap();
    let connect = |_| connect_exact(Kind::Packets, &system_name(ip), Trust::Own).unwrap();
    let all: Vec<_> = (0..100).map(connect).collect();
    crate::unix_socket::act_as_an_old_kernel();
    holder.poll_members();
    let is_open = |c: &CloseOnFork<OwnedFd>| !packets::is_closed(c.as_fd());
    // The threads close them when they end.
    let begin = Instant::now();
    while all.iter().any(is_open) {
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(threads(), 100_usize.div_ceil(held()));
}

#[test]
fn descriptors_of_ended_members_are_free_for_new_ones() {
    let ip = "127.61.9.8".parse().unwrap();
    let socket = Socket::bind(ip, crate::ROCE_PORT, 1 << 16).unwrap();
    let mut holder = Holder::for_all_users(ip, socket.into(), Quotas::default()).unwrap();
    let connect = || connect_exact(Kind::Packets, &system_name(ip), Trust::Own).unwrap();
    crate::unix_socket::act_as_an_old_kernel();
    let first = connect();
    holder.poll_members();
    assert_eq!(holder.connections.len(), 1);
    let second = connect();
    let third = connect();
    // Its number at this end stays taken.
    let limit = libc::rlimit {
        rlim_cur: 256,
        rlim_max: 1024,
    };
    // SAFETY: plain system calls; `limit` is read during the second one.
    unsafe {
        libc::shutdown(first.as_raw_fd(), libc::SHUT_RDWR);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    let mut all = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        all.push(file);
    }
    holder.poll_members();
    let admitted = holder.connections.len();
    drop(all);
    assert_eq!(admitted, 1, "one has ended, one is new");
    drop((first, second, third));
}

/// A member that is sent away joins again, and sends the same again.
#[test]
fn a_member_of_a_later_release_stays_and_is_answered() {
    use crate::message::FromMember;

    let ip = "127.61.9.9".parse().unwrap();
    let socket = Socket::bind(ip, crate::ROCE_PORT, 1 << 16).unwrap();
    let mut holder = Holder::for_all_users(ip, socket.into(), Quotas::default()).unwrap();
    let member = connect_exact(Kind::Packets, &system_name(ip), Trust::Own).unwrap();
    let what = Destination::Service(7);
    let mut hello = FromMember::Hello.encode();
    hello[5] = 1;
    let claim = [&FromMember::Claim(what).encode()[..], &[9; 200]].concat();
    for packet in [&[5][..], &[250; 300], &hello, &claim] {
        packets::send(member.as_fd(), packet, &[]).unwrap();
        holder.poll_members();
    }
    let mut answers = Vec::new();
    let mut buffer = [0; 64];
    while let Incoming::Packet(length, _) =
        packets::receive(member.as_fd(), &mut buffer, false).unwrap()
    {
        let answer = FromHolder::decode(&buffer[..length]).unwrap();
        answers.push(format!("{answer:?}"));
    }
    let expected = [FromHolder::Welcome(Some(0)), FromHolder::Answer(what, true)];
    assert_eq!(answers, expected.map(|answer| format!("{answer:?}")));
}
