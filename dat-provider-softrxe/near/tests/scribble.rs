//! A peer that writes anything over the shared memory while this process uses it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use softrxe_near::layout::{CONTROL, LINE, payload_at, record_length};
use softrxe_near::{Channel, Receiver, Sender, Violation};

const SIZE: usize = 4096;
const LENGTH: usize = 2 * (CONTROL + SIZE);

/// Sends a record, and starves if there is no room.
fn send(sender: &mut Sender, value: u8, length: usize) -> Result<(), Violation> {
    let at = payload_at(1, length);
    let space = sender.space()?;
    assert!(space.room <= SIZE);
    if record_length(at, length) > space.room {
        sender.publish();
        return sender.starve().map(|_| ());
    }
    // SAFETY: the room was checked.
    unsafe { space.at.add(at).write_bytes(value, length) };
    sender.commit(&[value], at, length);
    sender.publish();
    Ok(())
}

/// Takes a record; returns its header and copies its payload.
fn receive(receiver: &mut Receiver) -> Result<Option<(u8, Vec<u8>)>, Violation> {
    if receiver.arm() {
        receiver.disarm();
    }
    let Some(record) = receiver.next()? else {
        receiver.flush();
        return Ok(None);
    };
    let mut payload = vec![0; record.payload_length];
    // SAFETY: the payload is within the record, whatever the peer wrote.
    unsafe {
        record
            .payload()
            .copy_to(NonNull::from(&mut payload[..]).cast(), payload.len());
    }
    let header = record.header().first().copied().unwrap_or_default();
    receiver.release();
    receiver.flush();
    Ok(Some((header, payload)))
}

/// Writes random values to indices, records and anywhere, until `stop`.
fn scribble(memory: &File, mut random: fastrand::Rng, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let ring = random.usize(0..2) * (CONTROL + SIZE);
        let offset = match random.u8(0..3) {
            0 => ring + LINE * random.usize(0..4),
            1 => ring + CONTROL + 64 * random.usize(0..SIZE / 64),
            _ => random.usize(0..LENGTH - 8),
        };
        // Often a value that is nearly right.
        let value = match random.u8(0..3) {
            0 => random.u64(..),
            1 => random.u64(0..64) * 64,
            _ => random.u64(0..8) << random.u32(0..40),
        };
        let written = memory.write_all_at(&value.to_ne_bytes(), offset as u64);
        written.expect("the memory is writable");
    }
}

#[test]
fn a_scribbling_peer_ends_its_own_channel_only() {
    let (mut other, mut sound) = (0_u8, Channel::looped(SIZE).unwrap());
    for seed in 0..100 {
        let (mut channel, memory) = Channel::create(SIZE).unwrap();
        let file = File::from(memory);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| scribble(&file, fastrand::Rng::with_seed(seed), &stop));
            for step in 0_usize.. {
                let done = send(&mut channel.sender, step as u8, step % 513);
                if done.and(receive(&mut channel.receiver)).is_err() {
                    break;
                }
                other = other.wrapping_add(1);
                send(&mut sound.sender, other, 100).unwrap();
                let arrived = receive(&mut sound.receiver).unwrap();
                assert_eq!(arrived, Some((other, vec![other; 100])));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
