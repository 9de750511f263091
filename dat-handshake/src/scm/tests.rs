use super::*;

/// Recorded between two `dtest` over Debian's libdaploscm.so.2 on rxe: REQ and REP.
const RECORDED: [&str; 2] = [
    "0009000100000000000000000000000000300000000000000000000004000000030000000000000000000014fe80000000000000\
     906d1efffe6b8002000000020200c1600a0900010000000000000000000000000000000000000000000000000000000000000000\
     00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000102030405060708\
     090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f30",
    "0009000200000000000000000000000000300000000000000000000004000000030000000000000000000012fe80000000000000\
     906d1efffe6b8002000000020200b4a80a0900010000000000000000000000000000000000000000000000000000000000000000\
     00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000203040506070809\
     0a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031",
];

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Reads `bytes` in pieces of `piece` bytes until there is a message or an error.
fn read(bytes: &[u8], piece: usize) -> Result<Option<Message>, WireError> {
    let mut reader = Reader::default();
    let mut rest = bytes;
    loop {
        let message = reader.message()?;
        let room = reader.spare();
        let taken = piece.min(room.len()).min(rest.len());
        if taken == 0 || message.is_some() {
            return Ok(message);
        }
        room[..taken].copy_from_slice(&rest[..taken]);
        reader.filled(taken);
        rest = &rest[taken..];
    }
}

fn whole(bytes: &[u8]) -> Message {
    read(bytes, 4096).unwrap().unwrap()
}

#[test]
fn what_dapl_sends_is_read_and_written_byte_by_byte() {
    let gid = [
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x90, 0x6d, 0x1e, 0xff, 0xfe, 0x6b, 0x80, 0x02,
    ];
    // The peer's host has the family of a socket address in its own byte order, and the recorded ones are of x86-64.
    let own_order = |mut bytes: Vec<u8>| {
        bytes[AT_SOCKET..AT_SOCKET + 2].copy_from_slice(&u16::from(AF_INET).to_ne_bytes());
        bytes
    };
    for (hex, operation, qpn, port, first) in [
        (RECORDED[0], Operation::Request, 0x14, 0xc160, 1),
        (RECORDED[1], Operation::Reply, 0x12, 0xb4a8, 2),
    ] {
        let bytes = bytes(hex);
        let message = whole(&bytes);
        let expected = Message {
            version: 9,
            operation,
            reads_in: Some(4),
            mtu: Some(3),
            qp: QpAddress {
                lid: 0,
                qpn,
                gid,
                kind: RELIABLE,
            },
            socket: Some(SocketAddr::from(([10, 9, 0, 1], port))),
            second_gid: None,
            private_data: (first..first + 48).collect(),
        };
        assert_eq!(message, expected);
        assert_eq!(message.encode(false), own_order(bytes.clone()));
        let mut other_order = bytes;
        other_order[AT_SOCKET..AT_SOCKET + 2].reverse();
        assert_eq!(whole(&other_order), expected);
    }
}

#[test]
fn pieces_of_any_size_make_the_same_message_and_nothing_may_follow() {
    let mut bytes = bytes(RECORDED[0]);
    let message = whole(&bytes);
    for piece in 1..=bytes.len() {
        assert_eq!(read(&bytes, piece), Ok(Some(message.clone())));
    }
    for cut in 0..bytes.len() {
        assert_eq!(read(&bytes[..cut], 4096), Ok(None), "{cut} bytes");
    }
    bytes.extend_from_slice(&DISCONNECT);
    assert_eq!(read(&bytes, 4096), Err(WireError::Surplus(4)));
    bytes.resize(1000, 0);
    assert_eq!(read(&bytes, 4096), Err(WireError::Surplus(23)));
}

#[test]
fn before_version_8_two_bytes_more_come_first() {
    let mut pre_v8 = bytes(RECORDED[0]);
    pre_v8.splice(FIXED..FIXED, [0xff, 0xff]);
    for (version, reads_in) in [(6, None), (7, Some(4))] {
        pre_v8[1] = version;
        let message = whole(&pre_v8);
        assert_eq!(message.private_data[..3], [1, 2, 3], "version {version}");
        assert_eq!((message.reads_in, message.mtu), (reads_in, None));
        assert_eq!(message.mtu_or_default(), MTU_2048);
        assert!(message.expects_old_tail());
        let answer = message.refusal(false, &[9]).encode(true);
        assert_eq!((answer.len(), answer[FIXED + OLD_TAIL]), (FIXED + 3, 9));
    }
    let message = whole(&bytes(RECORDED[0]));
    assert!(!message.expects_old_tail());
}

#[test]
fn a_refusal_sends_the_request_back() {
    let request = bytes(RECORDED[0]);
    for (by_consumer, code) in [(true, 3), (false, 4)] {
        let refusal = whole(&request).refusal(by_consumer, b"no").encode(false);
        let mut expected = request[..FIXED].to_vec();
        expected[3] = code;
        expected[AT_LENGTH + 1] = 2;
        expected.extend_from_slice(b"no");
        expected[AT_SOCKET..AT_SOCKET + 2].copy_from_slice(&u16::from(AF_INET).to_ne_bytes());
        assert_eq!(refusal, expected);
    }
}

#[test]
fn a_second_gid_and_ipv6_ends_go_there_and_back() {
    let mut message = whole(&bytes(RECORDED[0]));
    message.second_gid = Some(*b"0123456789abcdef");
    message.socket = Some("[fd09::1]:46248".parse().unwrap());
    assert_eq!(whole(&message.encode(false)), message);
    assert_eq!(socket(&[0; 28]), None);
}

#[test]
fn private_data_fits_up_to_its_limit() {
    let mut message = whole(&bytes(RECORDED[0]));
    message.private_data = vec![7; MAX_PRIVATE];
    assert_eq!(whole(&message.encode(false)), message);
    message.private_data.push(8);
    assert_eq!(
        whole(&message.encode(false)).private_data,
        [7; MAX_PRIVATE],
        "cut off"
    );
}

#[test]
fn nonsense_is_found_at_once() {
    let good = bytes(RECORDED[0]);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        read(&bytes, 4096)
    };
    assert_eq!(with(1, 5), Err(WireError::Version(5)));
    assert_eq!(with(3, 0), Err(WireError::Operation(0)));
    assert_eq!(with(3, 5), Err(WireError::Operation(5)));
    assert_eq!(with(AT_LENGTH + 1, 69), Err(WireError::PrivateData(69)));
    assert_eq!(with(AT_MTU, 0), Err(WireError::Mtu(0)));
    assert_eq!(with(AT_MTU, 6), Err(WireError::Mtu(6)));
    assert_eq!(
        read(b"GET / HTTP/1.1\r\n", 2).unwrap_err(),
        WireError::Operation(0x5420),
        "a browser"
    );
    assert_eq!(read(&DISCONNECT, 4), Err(WireError::Version(0)));
}

#[test]
fn no_bytes_make_it_panic_or_want_too_much() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let good = bytes(RECORDED[0]);
    let mut seen = [0; 3];
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        bytes.resize(random() as usize % 300, 0xa5);
        for _ in 0..random() % 8 {
            let at = random() as usize % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random() as u8;
            }
        }
        match read(&bytes, 1 + random() as usize % 64) {
            Ok(Some(message)) => {
                assert!(message.private_data.len() <= MAX_PRIVATE);
                seen[0] += 1;
            }
            Ok(None) => seen[1] += 1,
            Err(_) => seen[2] += 1,
        }
    }
    assert!(seen.iter().all(|n| *n > 100), "{seen:?}");
}
