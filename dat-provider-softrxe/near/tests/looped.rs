//! One ring whose ends are in two threads. Miri runs it too, and checks the order of accesses to the payloads.

use std::ptr::NonNull;

use softrxe_near::layout::{payload_at, record_length};
use softrxe_near::{Channel, Receiver, Sender};

const SIZE: usize = 4096;

/// Sends a record with a header of one byte. Returns false if there is no room.
fn send(sender: &mut Sender, value: u8, length: usize) -> bool {
    let at = payload_at(1, length);
    let space = sender.space().unwrap();
    if record_length(at, length) > space.room {
        return false;
    }
    // SAFETY: the room was checked.
    unsafe { space.at.add(at).write_bytes(value, length) };
    sender.commit(&[value], at, length);
    true
}

/// Receives a record, whose bytes are all `value`, if there is one.
fn receive(receiver: &mut Receiver, value: u8, length: usize) -> bool {
    let Some(record) = receiver.next().unwrap() else {
        return false;
    };
    let mut payload = vec![!value; record.payload_length];
    // SAFETY: the payload is within the record.
    unsafe {
        record
            .payload()
            .copy_to(NonNull::from(&mut payload[..]).cast(), payload.len());
    }
    assert_eq!(record.header(), [value]);
    assert_eq!(payload, vec![value; length]);
    receiver.release();
    true
}

/// The length of a record's payload.
fn length(value: u8, mtu: usize) -> usize {
    [0, 8, 100, 4, mtu, 40, 1, 300][usize::from(value) % 8]
}

#[test]
fn records_between_two_threads_arrive_whole_and_their_places_are_used_again() {
    let Channel {
        mut sender,
        mut receiver,
    } = Channel::looped(SIZE).unwrap();
    let mtu = sender.mtu();
    let records = if cfg!(miri) { 60 } else { 60_000 };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..records {
                let value = number as u8;
                while !send(&mut sender, value, length(value, mtu)) {
                    sender.publish();
                    // The other end is awake all the time, and sees a flag at its next look.
                    if !sender.starve().unwrap() {
                        std::thread::yield_now();
                    }
                }
                match number % 3 {
                    0 => sender.expose(),
                    1 => drop(sender.publish()),
                    _ => {}
                }
            }
            sender.publish();
        });
        scope.spawn(move || {
            for number in 0..records {
                let value = number as u8;
                while !receive(&mut receiver, value, length(value, mtu)) {
                    receiver.flush();
                    if number % 5 == 0 {
                        receiver.arm();
                        receiver.disarm();
                    }
                    std::thread::yield_now();
                }
            }
        });
    });
}

#[test]
fn a_record_may_end_behind_the_end_of_the_ring() {
    let mut ring = Channel::looped(SIZE).unwrap();
    let mtu = ring.sender.mtu();
    let mut around = 0;
    for value in 0..40 {
        let begin = ring.sender.position();
        assert!(send(&mut ring.sender, value, mtu));
        around += u64::from(begin / SIZE as u64 != (ring.sender.position() - 1) / SIZE as u64);
        ring.sender.publish();
        assert!(receive(&mut ring.receiver, value, mtu));
        ring.receiver.flush();
    }
    assert!(around > 0);
}
