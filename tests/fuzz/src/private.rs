//! Private data of requests and answers. Any bytes are cut to the field, and a consumer's bytes arrive unchanged after each
//! of the headers.

use dat_core::private_data::{MAX_PRIVATE_DATA, PrivateData, check_length};
use dat_handshake::{Caller, Capabilities, Offer, final_psn, guid};
use softrxe_proto::wire::CmaHeader;
use softrxe_proto::wire::cm::{self, Body, CmMessage, Rep, Req, SidrReq};

use crate::input::Input;

/// Messages with private data.
const REQ: u16 = 0x10;
const REP: u16 = 0x13;
const SIDR_REQ: u16 = 0x17;

/// Reads the bytes as received private data, and sends them as a consumer.
///
/// # Panics
/// If a header or the data changes when it is written and read, or more than [`MAX_PRIVATE_DATA`] bytes are kept.
pub fn private(data: &[u8]) {
    let mut input = Input::new(data);
    let (earlier, more) = (usize::from(input.u16()) % 512, usize::from(input.u8()));
    let bytes = input.bytes(usize::MAX);
    arrived(bytes);
    kept(bytes, earlier);
    sent(bytes, more);
}

/// Reads any bytes as each of the headers.
fn arrived(bytes: &[u8]) {
    if let Some((caller, rest)) = Caller::read(bytes) {
        assert!(rest.len() <= usize::from(u8::MAX));
        let written = caller.write(rest);
        assert!(bytes.starts_with(&written));
        assert_eq!(Caller::read(&written), Some((caller, rest)));
    }
    if let Some(psn) = final_psn::parse(bytes) {
        let whole = final_psn::emit(psn, final_psn::parse_refusal(bytes));
        assert!(bytes.starts_with(&whole[..8]));
    }
    if let Some((word, rest)) = bytes.split_first_chunk() {
        agreed(u32::from_be_bytes(*word), rest.first() == Some(&0));
    }
    if let Some(header) = CmaHeader::parse(bytes) {
        let mut again = [0xee; CmaHeader::LEN];
        header.emit(&mut again);
        assert_eq!(CmaHeader::parse(&again), Some(header));
        assert_eq!(header.source.is_ipv4(), header.destination.is_ipv4());
    }
}

/// Reads any word as a peer's offer to engines of each version: both sides agree, and on no more than both have.
fn agreed(word: u32, own: bool) {
    let peer = Offer::from_word(word);
    assert_eq!(Offer::from_word(peer.word()), peer);
    let guid = if own { guid::own(word.into()) } else { 1 };
    for ours in [
        Offer::LEGACY,
        Offer::CURRENT,
        Offer::new(200, Capabilities::all()),
    ] {
        let here = ours.agree(guid, word);
        let there = peer.agree(guid, ours.answer(guid));
        assert_eq!(here, there);
        assert_eq!(here.is_own(), own);
        assert!(here.version() <= (word >> 24) as u8);
    }
}

/// Checks the data that a connection keeps for the consumer, also after earlier data.
fn kept(bytes: &[u8], earlier: usize) {
    let private = PrivateData::default();
    let address = private.address();
    private.set(&vec![0x5a; earlier]);
    private.set(bytes);
    let expected = &bytes[..bytes.len().min(MAX_PRIVATE_DATA)];
    assert_eq!(private.to_vec(), expected);
    assert_eq!(private.len(), expected.len());
    assert_eq!(private.is_empty(), expected.is_empty());
    assert_eq!(private.address(), address);
    let fits = check_length(bytes, earlier as u32, 1).is_ok();
    assert_eq!(fits, bytes.len() <= earlier.min(MAX_PRIVATE_DATA));
}

/// Checks the consumer's bytes in messages: the receiver reads them, and zeros after them.
fn sent(bytes: &[u8], more: usize) {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len() + more, 0);
    let caller = Caller {
        lid: more as u16,
        qpn: u32::MAX,
        qkey: 7,
    };
    let own = &bytes[..bytes.len().min(u8::MAX.into())];
    let mut asked = caller.write(own);
    asked.resize(asked.len() + more, 0);
    assert_eq!(Caller::read(&asked), Some((caller, own)));

    carried::<{ Req::PRIVATE_DATA }>(REQ, &padded, |message, field| match message {
        CmMessage::Req(m) => std::mem::replace(&mut m.private_data, field),
        other => panic!("{other:?}"),
    });
    carried::<{ Rep::PRIVATE_DATA }>(REP, &padded, |message, field| match message {
        CmMessage::Rep(m) => std::mem::replace(&mut m.private_data, field),
        other => panic!("{other:?}"),
    });
    carried::<{ SidrReq::PRIVATE_DATA }>(SIDR_REQ, &padded, |message, field| match message {
        CmMessage::SidrReq(m) => std::mem::replace(&mut m.private_data, field),
        other => panic!("{other:?}"),
    });
}

/// Sends `data` in a message; `swap` exchanges its private data.
fn carried<const N: usize>(
    attribute: u16,
    data: &[u8],
    mut swap: impl FnMut(&mut CmMessage, [u8; N]) -> [u8; N],
) {
    let empty: Body = [0; cm::LEN];
    let mut message = CmMessage::parse(attribute, &empty).expect("it is known");
    let clean = swap(&mut message, cm::private_data(data));
    assert_eq!(clean, [0; N]);
    let mut read = CmMessage::parse(attribute, &message.emit()).expect("it is known");
    assert_eq!(read, message);
    let field = swap(&mut read, [0; N]);
    let length = data.len().min(N);
    assert_eq!(field[..length], data[..length]);
    assert!(field[length..].iter().all(|byte| *byte == 0));
    assert_eq!(read.emit(), empty, "the data is elsewhere, too");
}

/// Returns headers of both kinds with data after them, and data with lengths around the limits.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut v4 = vec![0; CmaHeader::LEN];
    (v4[1], v4[16], v4[32]) = (4 << 4, 10, 10);
    let mut v6 = v4.clone();
    (v6[1], v6[4], v6[20]) = (6 << 4, 0xfd, 0xfd);
    let caller = b"DATu\x01\x07\x00\x00\x00\x00\x00\x11\x00\x00\x00\x07private".to_vec();
    let final_psn = final_psn::emit(7, None).to_vec();
    let words = [0, Offer::CURRENT.word(), u32::MAX].map(|word| {
        // The byte after the word selects an engine of this project.
        [&word.to_be_bytes()[..], &[0]].concat()
    });
    let lengths = [0, 1, 56, 92, 196, 255, 256, 257, 300].map(|length| vec![0xa5; length]);
    let seed = |bytes: Vec<u8>| [&[0, 1, 9], &bytes[..]].concat();
    let headers = [v4, v6, caller].map(|header| [&header[..], b"private"].concat());
    let others = words.into_iter().chain([final_psn]).chain(lengths);
    headers.into_iter().chain(others).map(seed).collect()
}
