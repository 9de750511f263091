//! Records through a channel within one process: both mappings of one memory.

use std::ptr::NonNull;

use softrxe_near::layout::{payload_at, record_length};
use softrxe_near::{Channel, Receiver, Sender};

const SIZE: usize = 65_536;

fn pair() -> (Channel, Channel) {
    let (one, memory) = Channel::create(SIZE).unwrap();
    let other = Channel::adopt(&memory, SIZE).unwrap();
    (one, other)
}

fn copy_in(at: NonNull<u8>, offset: usize, payload: &[u8]) {
    // SAFETY: callers have room for the record.
    unsafe {
        at.add(offset)
            .copy_from(NonNull::from(payload).cast(), payload.len());
    };
}

/// Sends a record if there is room.
fn send(sender: &mut Sender, header: &[u8], payload: &[u8]) -> bool {
    let at = payload_at(header.len(), payload.len());
    let space = sender.space().unwrap();
    if record_length(at, payload.len()) > space.room {
        return false;
    }
    copy_in(space.at, at, payload);
    sender.commit(header, at, payload.len());
    true
}

fn receive(receiver: &mut Receiver) -> Option<(Vec<u8>, Vec<u8>)> {
    let record = receiver.next().unwrap()?;
    let mut payload = vec![0; record.payload_length];
    // SAFETY: the payload is within the record.
    unsafe {
        record
            .payload()
            .copy_to(NonNull::from(&mut payload[..]).cast(), payload.len());
    };
    let header = record.header().to_vec();
    receiver.release();
    Some((header, payload))
}

#[test]
fn records_of_all_lengths_arrive_whole_and_in_order_around_the_ring() {
    let (mut one, mut other) = pair();
    let mtu = one.sender.mtu();
    let mut sent = 0_usize;
    for round in 0..200 {
        for length in [0, 1, 7, 8, 63, 64, 512, 513, 4096, mtu - 1, mtu] {
            let header: Vec<u8> = (0..length % 41).map(|byte| (byte + round) as u8).collect();
            let payload: Vec<u8> = (0..length).map(|byte| (byte * 7 + round) as u8).collect();
            for (from, to) in [
                (&mut one.sender, &mut other.receiver),
                (&mut other.sender, &mut one.receiver),
            ] {
                assert!(send(from, &header, &payload));
                assert!(!from.publish(), "awake");
                assert_eq!(receive(to), Some((header.clone(), payload.clone())));
                assert_eq!(receive(to), None);
                to.flush();
            }
            sent += length;
        }
    }
    assert!(sent > 10 * SIZE, "the positions went around");
}

#[test]
fn a_ring_holds_what_its_size_says_and_room_comes_back() {
    let mut ring = Channel::looped(SIZE).unwrap();
    for _ in 0..3 {
        let mut sent = 0;
        while send(&mut ring.sender, &[1], &[2; 8]) {
            sent += 1;
        }
        assert_eq!(sent, SIZE / 64);
        ring.sender.publish();
        assert!(!ring.sender.starve().unwrap());
        for _ in 0..sent {
            assert_eq!(receive(&mut ring.receiver), Some((vec![1], vec![2; 8])));
        }
        assert_eq!(receive(&mut ring.receiver), None);
        assert!(!ring.receiver.flush(), "awake");
        assert!(ring.sender.starve().unwrap());
    }
}

#[test]
fn a_sleeper_is_woken_once_for_a_record_and_for_room() {
    let (mut one, mut other) = pair();
    assert!(!other.receiver.arm());
    assert!(send(&mut one.sender, &[], &[1]));
    assert!(one.sender.publish());
    assert!(send(&mut one.sender, &[], &[1]));
    assert!(!one.sender.publish(), "the flag was taken");
    assert!(other.receiver.arm(), "records are published");
    other.receiver.disarm();
    assert!(send(&mut one.sender, &[], &[1]));
    assert!(!one.sender.publish());
    while send(&mut one.sender, &[], &[1]) {}
    one.sender.publish();
    assert!(!one.receiver.arm());
    assert!(!one.sender.starve().unwrap());
    let mut read = 0;
    let mut woken = 0;
    while receive(&mut other.receiver).is_some() {
        read += 1;
        if other.receiver.flush() {
            woken += 1;
            assert!(read >= SIZE / 64 / 2 - SIZE / 64 / 8 && one.sender.starve().unwrap());
        }
    }
    assert_eq!((read, woken), (SIZE / 64, 1));
}

#[test]
fn a_record_that_is_not_released_is_there_again() {
    let mut ring = Channel::looped(SIZE).unwrap();
    send(&mut ring.sender, &[5], &[]);
    ring.sender.publish();
    let first = ring.receiver.next().unwrap().unwrap();
    assert_eq!(ring.receiver.next().unwrap(), Some(first));
    ring.receiver.release();
    ring.receiver.release();
    assert_eq!(ring.receiver.next().unwrap(), None);
}
