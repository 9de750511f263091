//! Threads that read and write the same bytes of a region, and an adapter that sends and receives them meanwhile.
//!
//! docs/sanitizers.md has the command that runs it under ThreadSanitizer.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{PATIENCE, pair, side};
use udapl::{Access, Close, CompletionFlags, Event};

#[test]
fn each_byte_that_is_read_was_written() {
    const ROUNDS: u8 = 100;
    let (a, b) = pair();
    let region = b.pz.allocate(3001, Access::ALL).expect("memory");
    let ours = a.pz.allocate(3001, Access::ALL).expect("memory");
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                region.write(1, &[round; 3000]);
            }
        });
        scope.spawn(|| {
            let mut seen = [0; 3000];
            for _ in 0..ROUNDS {
                region.read(1, &mut seen);
                assert!(seen.iter().all(|byte| *byte < ROUNDS || *byte == 0xff));
            }
        });
        ours.write(0, &[0xff; 3001]);
        for _ in 0..ROUNDS {
            let all = [ours.slice(0..3001)];
            let none = CompletionFlags::empty();
            a.ep.post_rdma_write(&all, region.remote(0..3001), 1, none)
                .expect("posts");
            a.done.wait_completion(PATIENCE).expect("written");
        }
    });
    // Every length is copied whole, at odd addresses too.
    for length in (0..300).chain([1023, 1024, 1025, 2999]) {
        let bytes: Vec<u8> = (0..length).map(|n| (n * 7 + 1) as u8).collect();
        region.write(0, &[0; 3001]);
        region.write(1, &bytes);
        assert_eq!(region.to_vec(1..1 + length), bytes);
        assert_eq!(
            (region.load(0), region.load(1 + length)),
            (0, 0),
            "{length}"
        );
    }
}

/// The data of an event lie in the provider's endpoint, whose next connection replaces them.
#[test]
fn private_data_are_taken_while_their_endpoint_connects_again() {
    const ROUNDS: u8 = 60;
    let (a, b) = (side(), side());
    let listener = b.ia.listen(None, &b.connections).expect("listens");
    let address = b.ia.attributes().expect("attributes").address;
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut answer = 0_u8;
            while !ended.load(Ordering::Relaxed) {
                if let Ok(Event::Request(request)) = b.connections.wait(Duration::from_millis(10)) {
                    answer = answer.wrapping_add(1);
                    // An attempt that has ended cannot be answered.
                    let _ = request.reject(&[answer; 100]);
                }
            }
        });
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                // A dispatcher that is polled at the same time as the endpoint connects again.
                let _ = a.connections.poll();
            }
        });
        for _ in 0..ROUNDS {
            // Refused while the attempt before it is under way.
            let attempt = a.ep.connect(address, listener.conn_qual());
            let _ = attempt.timeout(PATIENCE).start();
            thread::sleep(Duration::from_millis(1));
            let _ = a.ep.disconnect(Close::Abrupt);
            let _ = a.ep.reset();
        }
        ended.store(true, Ordering::Relaxed);
    });
}
