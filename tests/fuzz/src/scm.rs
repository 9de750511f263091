//! The messages of DAPL's scm provider, which come over TCP from anything that finds the port: any bytes in any pieces are a message,
//! no message yet, or refused, and a message says the same when it is written again.

use crate::input::Input;

// The codec stands alone in its file; the rest of its crate needs libibverbs.
#[allow(dead_code, unreachable_pub, reason = "the body uses half of it")]
#[path = "../../../dat-verbs/src/cm/socket/wire.rs"]
mod wire;

use wire::{FIXED, MAX_PRIVATE, Message, Reader, WireError};

/// Reads the bytes in pieces as a message: the first is the size of a piece.
///
/// # Panics
/// When pieces of another size make another message, or a message is another one after it was written and read.
pub fn scm(data: &[u8]) {
    let mut input = Input::new(data);
    let piece = usize::from(input.u8()).max(1);
    let bytes = input.bytes(usize::MAX);
    let whole = read(bytes, usize::MAX);
    let pieces = read(bytes, piece);
    match (&whole, &pieces) {
        // What follows a message is seen only if it comes with it.
        (
            Err(WireError::Surplus(_)),
            Ok(Some(_)) | Err(WireError::Surplus(_) | WireError::Mtu(_)),
        ) => {}
        _ => assert_eq!(whole, pieces, "pieces of {piece}"),
    }
    let Ok(Some(message)) = pieces else { return };
    assert!(message.private_data.len() <= MAX_PRIVATE);
    for answer in [message.refusal(true, b"no"), message.clone()] {
        let written = answer.encode(false);
        assert_eq!(written.len(), FIXED + answer.private_data.len());
        let again = match read(&written, usize::MAX) {
            Ok(Some(again)) => again,
            // Versions before 9 have no MTU; 9 is written, with the usual one.
            other => panic!("{answer:?} became {other:?}"),
        };
        let mut expected = answer;
        expected.reads_in = expected.reads_in.or(Some(0));
        expected.mtu = Some(expected.mtu_or_default());
        expected.version = again.version;
        if let (Some(socket), Some(read)) = (&mut expected.socket, again.socket) {
            // The scope and flow of an IPv6 end are not carried.
            socket.set_port(read.port());
        }
        assert_eq!(again, expected);
    }
}

/// Reads `bytes` in pieces of `piece` until there is a message or an error.
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

/// A request and a reply as DAPL's dtest sends them, and one of an old version.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let message = |version: u8, operation: u8, private: &[u8]| {
        let mut bytes = vec![0; FIXED];
        bytes[1] = version;
        bytes[3] = operation;
        bytes[17] = private.len() as u8;
        bytes[28] = 4;
        bytes[32] = 3;
        bytes[43..48].copy_from_slice(&[0x14, 0xfe, 0x80, 0, 0]);
        bytes[63] = 2;
        bytes[64..72].copy_from_slice(&[2, 0, 0xc1, 0x60, 10, 9, 0, 1]);
        if version < 8 {
            bytes.extend([0; 2]);
        }
        bytes.extend(private);
        [vec![64], bytes].concat()
    };
    vec![
        message(9, 1, &[1, 2, 3]),
        message(9, 2, &[7; MAX_PRIVATE]),
        message(9, 3, &[]),
        message(6, 1, &[9; 8]),
        message(7, 4, &[]),
    ]
}
