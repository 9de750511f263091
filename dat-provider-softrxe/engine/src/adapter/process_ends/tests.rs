use std::sync::atomic::{AtomicBool, Ordering};

use softrxe_port::socket::Socket;

use super::*;
use crate::adapter::ports::cm_address;
use crate::transport::open::test_hub;

/// Any process may send datagrams to the port, of which many arrive in one read.
#[test]
fn the_end_of_a_process_beside_a_flood_does_not_hold_the_lock_for_long() {
    let hub = test_hub("127.77.5.40");
    let to = cm_address(hub.address());
    let sender = Socket::bind("127.77.5.41".parse().unwrap(), 0, 1 << 20).unwrap();
    // Each of 64 bytes, for a queue pair that does not exist.
    let run = [0x64, 0, 0xff, 0xff].repeat(64 * 16);
    let over = AtomicBool::new(false);
    let flood = || {
        let pieces = [libc::iovec {
            iov_base: run.as_ptr().cast_mut().cast(),
            iov_len: run.len(),
        }];
        while !over.load(Ordering::Relaxed) {
            // A full buffer is no error here. SAFETY: the run outlives the call.
            let _ = unsafe { sender.send(&to, &pieces, Some(64)) };
        }
    };
    let took = std::thread::scope(|scope| {
        scope.spawn(flood);
        while !hub.state.lock().receive(clock::now(), true) {}
        let begin = Instant::now();
        let connected = hub.drain_final(&mut hub.state.lock(), &[]);
        let took = begin.elapsed();
        over.store(true, Ordering::Relaxed);
        assert!(!connected);
        took
    });
    assert!(took < Duration::from_millis(500), "{took:?}");
}
