//! Fuzz body for the messages of DAPL's scm provider, which arrive over TCP from any host that reaches the port. Any bytes in
//! any pieces are a message, an incomplete message or an error, and a decoded message survives encoding.

use dat_handshake::scm::{
    FIRST_SHORT, FIXED, MAX_PRIVATE, Message, Operation, QpAddress, RELIABLE, Reader, WireError,
};

use crate::input::Input;

/// Decodes the bytes as a message, in pieces whose size is the first byte.
///
/// # Panics
/// If the size of the pieces changes the message, or encoding and decoding changes it.
pub fn scm(data: &[u8]) {
    let mut input = Input::new(data);
    let piece = usize::from(input.u8()).max(1);
    let bytes = input.bytes(usize::MAX);
    let whole = read(bytes, usize::MAX);
    let pieces = read(bytes, piece);
    match (&whole, &pieces) {
        // Surplus bytes are detected only if they arrive in the piece that completes the message.
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
            other => panic!("{answer:?} became {other:?}"),
        };
        let mut expected = answer;
        // The encoder writes version 9: fields that older versions lack get their defaults.
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
        let spare = reader.spare();
        let taken = piece.min(spare.len()).min(rest.len());
        if taken == 0 || message.is_some() {
            return Ok(message);
        }
        spare[..taken].copy_from_slice(&rest[..taken]);
        reader.filled(taken);
        rest = &rest[taken..];
    }
}

/// Returns a request, a reply and rejects of DAPL's dtest, two of them in the layouts of old versions.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let message = |version: u16, operation: Operation, private_data: &[u8]| {
        let message = Message {
            version,
            operation,
            reads_in: Some(4),
            mtu: Some(3),
            qp: QpAddress {
                lid: 0,
                qpn: 0x14,
                gid: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                kind: RELIABLE,
            },
            socket: Some(([10, 9, 0, 1], 49504).into()),
            second_gid: None,
            private_data: private_data.to_vec(),
        };
        // The encoder writes the newest version.
        let mut bytes = message.encode(version < FIRST_SHORT);
        bytes[..2].copy_from_slice(&version.to_be_bytes());
        [vec![64], bytes].concat()
    };
    vec![
        message(9, Operation::Request, &[1, 2, 3]),
        message(9, Operation::Reply, &[7; MAX_PRIVATE]),
        message(9, Operation::RejectedByConsumer, &[]),
        message(6, Operation::Request, &[9; 8]),
        message(7, Operation::RejectedByProvider, &[]),
    ]
}
