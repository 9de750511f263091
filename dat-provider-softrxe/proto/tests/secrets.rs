//! The numbers that a peer sees reveal neither those that others have seen nor those that are drawn later.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::pair::{Packet, Pair};
use softrxe_proto::wire::cm::{CmMessage, Rep, Req};
use softrxe_proto::wire::{MadHeader, Packet as WirePacket};
use softrxe_proto::{SecretKey, service_id};

/// Returns transaction id and message of a management datagram.
fn message(packet: &Packet) -> Option<(u64, CmMessage)> {
    let packet = WirePacket::parse(&packet.bytes).ok()?;
    packet.headers.deth?;
    let header = MadHeader::parse(packet.payload)?;
    let body = packet.payload[MadHeader::LEN..].try_into().ok()?;
    let message = CmMessage::parse(header.attribute_id, body)?;
    Some((header.transaction_id, message))
}

/// Returns transaction id, REQ and REP of a connection, as on the wire.
fn seen(pair: &mut Pair) -> (u64, Req, Rep) {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let note = Rc::clone(&seen);
    pair.filter = Box::new(move |packet| {
        note.borrow_mut().extend(message(packet));
        true
    });
    pair.connect_by_cm(service_id::tcp(7001));
    pair.filter = Box::new(|_| true);
    let seen = seen.borrow();
    let req = seen
        .iter()
        .find_map(|(transaction, message)| match message {
            CmMessage::Req(req) => Some((*transaction, *req)),
            _ => None,
        });
    let rep = seen.iter().find_map(|(_, message)| match message {
        CmMessage::Rep(rep) => Some(*rep),
        _ => None,
    });
    let (transaction, req) = req.expect("a REQ");
    (transaction, req, rep.expect("a REP"))
}

/// splitmix64, a generator that also runs backwards: 64 bits of output are its whole state.
mod splitmix {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    const FACTORS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

    pub(super) fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(STEP);
        let mut z = *state;
        z = (z ^ z >> 30).wrapping_mul(FACTORS[0]);
        z = (z ^ z >> 27).wrapping_mul(FACTORS[1]);
        z ^ z >> 31
    }

    /// Returns `x` of `x ^ x >> by`.
    fn unshift(shifted: u64, by: u32) -> u64 {
        let mut x = shifted;
        for _ in 0..64 / by {
            x = shifted ^ x >> by;
        }
        x
    }

    /// Returns the inverse of an odd factor, modulo 2^64.
    fn inverse(factor: u64) -> u64 {
        let mut x = factor;
        for _ in 0..6 {
            x = x.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(x)));
        }
        x
    }

    /// Returns the state that gave `output`.
    pub(super) fn state(output: u64) -> u64 {
        let mut z = unshift(output, 31);
        z = unshift(z.wrapping_mul(inverse(FACTORS[1])), 27);
        unshift(z.wrapping_mul(inverse(FACTORS[0])), 30)
    }

    #[test]
    fn runs_backwards() {
        let mut at = 7;
        let output = next(&mut at);
        assert_eq!(state(output), at);
    }
}

/// The generator was once splitmix64, and the CA GUID contained 48 bits of its first output. 65,536 guesses remained, which
/// the first PSN and the ids of one connection decide. So a peer could compute all that the engine had drawn and would
/// draw.
#[test]
fn the_guid_does_not_reveal_the_state_of_the_generator() {
    let mut pair = Pair::new("guid");
    let (transaction, req, _) = seen(&mut pair);
    let explains = |low: u64| {
        let mut state = splitmix::state(req.ca_guid << 16 | low);
        let drawn: Vec<u64> = (0..32).map(|_| splitmix::next(&mut state)).collect();
        let position = drawn.iter().position(|drawn| *drawn == transaction);
        position.is_some().then_some((low, drawn, position))
    };
    assert_eq!((0..=0xffff).find_map(explains), None);
}

/// Returns the numbers of a REQ and a REP, of a client and a server with `secret` and the same public numbers.
fn drawn_with(secret: u8) -> [u64; 5] {
    let mut pair = Pair::with("drawn", 1, |config| {
        let last = config.local.to_string().ends_with('2');
        config.secret = SecretKey::new([secret + u8::from(last); 32]);
        config.guid = 0x1234;
    });
    let (transaction, req, rep) = seen(&mut pair);
    assert_eq!(
        (req.ca_guid, rep.ca_guid),
        (0x5d52_0000_0000_1234, req.ca_guid)
    );
    [
        transaction,
        req.local_id.into(),
        req.starting_psn.value().into(),
        rep.local_id.into(),
        rep.starting_psn.value().into(),
    ]
}

#[test]
fn engines_with_equal_public_numbers_draw_by_their_secrets() {
    let (one, other) = (drawn_with(1), drawn_with(7));
    assert_eq!(one, drawn_with(1), "the same again");
    for (one, other) in one.iter().zip(&other) {
        assert_ne!(one, other);
    }
}
