//! Peers that send a TCP socket whose last close waits for as long as they choose. The threads that close such sockets have all descriptors of the
//! process for a moment, so other tests are in another file.

mod peer;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use peer::{end, memory};
use softrxe_near::SMALL_RING;
use softrxe_near::agreement::hello::{Hello, Packet};
use softrxe_near::agreement::{Dial, DialError, End, Offer};
use softrxe_near::layout::CONTROL;
use softrxe_port::fork::CloseOnFork;
use softrxe_port::own_user;
use softrxe_port::packets;
use softrxe_port::poll_set::PollSet;

/// The engines of this file.
const TEST: u8 = 117;

/// Returns another engine, as threads may still have the names of those before.
fn next_end() -> End {
    static NEXT: AtomicU16 = AtomicU16::new(2);
    end(TEST, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a call of engine 1 to `other`, and the other end of its connection, over which the answer was sent, if there is one.
fn call(other: End, answer: Option<(&[u8], &[RawFd])>) -> (Dial, CloseOnFork<OwnedFd>) {
    let ready = Arc::new(PollSet::new().unwrap());
    let role = format!("near/{}", other.slot);
    let listener = own_user::listen(other.ip, &role, ready).unwrap();
    let dial = Dial::start(end(TEST, 1), other, Offer::new(SMALL_RING, 4791)).unwrap();
    assert!(listener.accept());
    let connection = listener.take().unwrap();
    if let Some((answer, descriptors)) = answer {
        packets::send(connection.as_fd(), answer, descriptors).unwrap();
    }
    (dial, connection)
}

/// Returns a TCP socket whose last close takes ten minutes, and its peer.
fn socket_that_lingers() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65_536]).is_ok() {}
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 600,
    };
    // SAFETY: the option is a structure of this size.
    let set = unsafe {
        let size = size_of_val(&linger) as libc::socklen_t;
        let at = (&raw const linger).cast();
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            at,
            size,
        )
    };
    assert_eq!(set, 0);
    (socket, peer)
}

/// In place of the memory.
#[test]
fn a_socket_that_lingers_does_not_keep_the_caller() {
    let (one, other) = (end(TEST, 1), next_end());
    let (socket, _peer) = socket_that_lingers();
    let answer = Packet::Answer(Hello::new(other, one.guid, Offer::new(SMALL_RING, 4791)));
    let descriptors = [socket.as_raw_fd()];
    let (mut dial, _there) = call(other, Some((&answer.encode(), &descriptors)));
    drop(socket);
    dial.poll().unwrap_err();
}

/// Behind more descriptors than the caller has room for.
#[test]
fn a_socket_that_lingers_behind_many_descriptors_does_not_keep_the_caller() {
    let other = next_end();
    let (socket, _peer) = socket_that_lingers();
    let (mut dial, there) = call(other, None);
    let memory = memory(0, 0);
    let mut descriptors = [memory.as_raw_fd(); 64];
    descriptors[63] = socket.as_raw_fd();
    send_many(&there, &descriptors);
    drop(socket);
    let error = dial.poll().unwrap_err();
    assert!(matches!(error, DialError::Hello(_)), "{error}");
}

/// Sends a byte with any number of descriptors.
fn send_many(to: &OwnedFd, descriptors: &[RawFd; 64]) {
    #[repr(C)]
    struct Control(libc::cmsghdr, [RawFd; 64]);
    let mut byte = 1_u8;
    // SAFETY: plain data, for which zeros are valid; the parts of the message live until the call returns.
    unsafe {
        let mut control: Control = std::mem::zeroed();
        control.0.cmsg_level = libc::SOL_SOCKET;
        control.0.cmsg_type = libc::SCM_RIGHTS;
        control.0.cmsg_len = libc::CMSG_LEN(size_of_val(descriptors) as u32) as _;
        control.1 = *descriptors;
        let mut piece = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of_val(&control) as _;
        assert_eq!(libc::sendmsg(to.as_raw_fd(), &raw const message, 0), 1);
    }
}

/// With a wake-up: as the first one is read, and while it waits as the channel ends.
#[test]
fn a_socket_that_lingers_does_not_keep_the_reader_of_wake_ups() {
    for is_read in [true, false] {
        let (one, other) = (end(TEST, 1), next_end());
        let offer = Offer {
            events: false,
            ..Offer::new(SMALL_RING, 4791)
        };
        let answer = Packet::Answer(Hello::new(other, one.guid, offer));
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        let memory = memory(2 * (CONTROL + SMALL_RING) as i64, seals);
        let descriptors = [memory.as_raw_fd()];
        let (mut dial, there) = call(other, Some((&answer.encode(), &descriptors)));
        let (socket, _peer) = socket_that_lingers();
        packets::send(there.as_fd(), &[1], &[socket.as_raw_fd()]).unwrap();
        drop(socket);
        let here = dial.poll().unwrap().expect("an answer waits");
        if is_read {
            let _ = here.bell.clear(here.bell.as_raw_fd());
        }
        drop(here);
    }
}
