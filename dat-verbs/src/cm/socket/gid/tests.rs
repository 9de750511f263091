use dat_handshake::scm::{Operation, QpAddress, RELIABLE, VERSION};

use super::*;

fn raw(ip: &str) -> [u8; 16] {
    match ip.parse().unwrap() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn gid(index: u8, ip: &str) -> Gid {
    Gid {
        index,
        raw: raw(ip),
    }
}

fn message(first: &str, second: Option<&str>) -> Message {
    Message {
        version: VERSION,
        operation: Operation::Request,
        reads_in: Some(4),
        mtu: Some(3),
        qp: QpAddress {
            lid: 0,
            qpn: 17,
            gid: raw(first),
            kind: RELIABLE,
        },
        socket: None,
        second_gid: second.map(raw),
        private_data: Vec::new(),
    }
}

fn gids() -> Gids {
    Gids {
        first: gid(0, "fe80::1"),
        second: Some(gid(3, "10.9.0.1")),
    }
}

#[test]
fn the_entry_of_the_address_is_one_of_v2_if_there_is_one() {
    let table = [
        gid(0, "fe80::1"),
        gid(1, "fe80::1"),
        gid(2, "10.9.0.1"),
        gid(3, "10.9.0.1"),
    ];
    let find = |ip: &str, v2: &'static [u8]| {
        of_address(table.into_iter(), ip.parse().unwrap(), |g| {
            v2.contains(&g.index)
        })
        .map(|g| g.index)
    };
    assert_eq!(find("10.9.0.1", &[1, 3]), Some(3));
    assert_eq!(find("10.9.0.1", &[]), Some(2));
    assert_eq!(find("fe80::1", &[1, 3]), Some(1));
    assert_eq!(find("10.9.0.2", &[1, 3]), None);
}

#[test]
fn an_empty_entry_does_not_end_the_table() {
    let adapter = crate::fake::adapter("");
    let ip = IpAddr::from([127, 0, 0, 1]);
    let gids = Gids::read(&adapter.shared.device, 1, ip, true, None);
    let second = gids.and_then(|gids| gids.second);
    assert_eq!(second, Some(gid(2, "127.0.0.1")));
}

#[test]
fn two_of_ours_meet_on_their_addresses() {
    let asked = message("fe80::2", Some("10.9.0.2"));
    let answer = gids().choose(&asked);
    assert_eq!(
        (answer.local.index, answer.remote, answer.second),
        (3, raw("10.9.0.2"), true)
    );
    let chosen = gids().choice_of(&message("10.9.0.2", Some("10.9.0.2")));
    assert_eq!(chosen, answer);
}

#[test]
fn with_dapl_both_use_the_first_entry() {
    let dapl = message("fe80::2", None);
    for choice in [gids().choose(&dapl), gids().choice_of(&dapl)] {
        assert_eq!(
            (choice.local.index, choice.remote, choice.second),
            (0, raw("fe80::2"), false)
        );
    }
}

#[test]
fn an_acceptor_takes_what_can_talk_to_the_peer() {
    assert_eq!(gids().choose(&message("10.9.0.2", None)).local.index, 3);
    assert_eq!(gids().choose(&message("fd09::2", None)).local.index, 0);
    let v6 = message("fe80::2", Some("fd09::2"));
    assert_eq!(
        gids().choose(&v6).local.index,
        0,
        "a path does not mix IPv4 and IPv6"
    );
    let fixed = Gids {
        first: gid(5, "fd09::1"),
        second: None,
    };
    let asked = message("fe80::2", Some("10.9.0.2"));
    assert_eq!(fixed.choose(&asked).local.index, 5, "gid_index is used");
}
