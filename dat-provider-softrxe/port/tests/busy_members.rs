//! Processes of one user send to the port's holder without an end, while datagrams arrive for slots that no process has. Any host can send those.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use softrxe_port::message::{Destination, FromMember};
use softrxe_port::port_share::{Policy, PortShare};
use softrxe_port::{own_user, packets};

const LOCAL: &str = "127.77.12.2:47913";
/// Threads that send, and the connections of each.
const THREADS: usize = 4;
const LINES: usize = 8;

#[test]
fn datagrams_for_nobody_do_not_read_all_that_members_of_the_own_user_send() {
    let local: std::net::SocketAddr = LOCAL.parse().unwrap();
    let share = PortShare::take(local, 1 << 20, Policy::default()).unwrap();
    let PortShare::Holder(mut holder) = share else {
        panic!("a member");
    };
    let over = AtomicBool::new(false);
    let release = FromMember::Release(Destination::Service(1)).encode();
    let send = || {
        let connect = |_| own_user::connect(local.ip(), "port").unwrap();
        let lines: Vec<_> = (0..LINES).map(connect).collect();
        while !over.load(Ordering::Relaxed) {
            for line in &lines {
                // A full connection is no error here.
                let _ = packets::send(line.as_fd(), &release, &[]);
            }
        }
    };
    let took = std::thread::scope(|scope| {
        (0..THREADS).for_each(|_| drop(scope.spawn(send)));
        let end = Instant::now() + Duration::from_millis(200);
        while Instant::now() < end {
            holder.poll_members();
        }
        let begin = Instant::now();
        for _ in 0..50 {
            assert!(!holder.deliver(Destination::Slot(900), local, 0, &[0; 64]));
        }
        let took = begin.elapsed();
        over.store(true, Ordering::Relaxed);
        took
    });
    assert!(took < Duration::from_secs(1), "{took:?}");
}
