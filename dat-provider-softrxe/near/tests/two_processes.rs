//! A stream between two processes that agree through real sockets and sleep when they have nothing to do; one is killed.

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use softrxe_near::agreement::{Agreed, Bell, Dial, DialError, Door, End, Offer};
use softrxe_near::layout::{payload_at, record_length};
use softrxe_near::{SMALL_RING, Violation};
use softrxe_port::poll_set::PollSet;

/// Names the listening process's address to the peer.
const ADDRESS: &str = "NEAR_TEST_ADDRESS";
/// Says how many descriptors the peer may open once it has called.
const FREE: &str = "NEAR_TEST_FREE";

fn end(ip: IpAddr, slot: u16) -> End {
    let guid = u64::from(slot);
    End { ip, slot, guid }
}

/// Waits until `fd` is readable.
fn sleep_on(fd: i32) {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, which lives until the return.
    unsafe { libc::poll(&raw mut poll, 1, -1) };
}

/// Length of record `number`: from nothing to the MTU.
fn length_of(number: u64, mtu: usize) -> usize {
    let spread = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % (mtu + 1);
    spread >> (number % 11)
}

/// Sends record `number`. Returns false if there is no room.
fn send(peer: &mut Agreed, number: u64) -> Result<bool, Violation> {
    let sender = &mut peer.channel.sender;
    let length = length_of(number, sender.mtu());
    let at = payload_at(8, length);
    let space = sender.space()?;
    if space.room < record_length(at, length) {
        return Ok(false);
    }
    // SAFETY: the room was checked.
    unsafe { space.at.add(at).write_bytes(number as u8, length) };
    sender.commit(&number.to_ne_bytes(), at, length);
    Ok(true)
}

fn watch(bell: &Bell) -> PollSet {
    let bells = PollSet::new().expect("a descriptor");
    bell.watch(&bells).expect("watched");
    bells
}

/// Takes the wake-ups. Returns whether the peer is there.
fn clear(bell: &Bell, bells: &PollSet) -> bool {
    let ready = bells.ready();
    ready
        .iter()
        .all(|fd| bell.clear(*fd).expect("the connection works"))
}

/// Sends records until the parent ends the channel.
fn stream(peer: &mut Agreed) -> Result<(), Violation> {
    let bells = watch(&peer.bell);
    let mut number = 0;
    loop {
        let is_sent = send(peer, number)?;
        number += u64::from(is_sent);
        if is_sent && !number.is_multiple_of(5) {
            continue;
        }
        if peer.channel.sender.publish() {
            peer.bell.ring();
        }
        if is_sent {
            continue;
        }
        let mut is_awake = peer.channel.receiver.arm();
        if peer.channel.receiver.flush() {
            peer.bell.ring();
        }
        is_awake |= peer.channel.sender.starve()?;
        if !is_awake {
            sleep_on(bells.as_raw_fd());
        }
        peer.channel.receiver.disarm();
        if !clear(&peer.bell, &bells) {
            return Ok(());
        }
    }
}

/// Takes the next record and checks it. Returns false if there is none.
fn receive(peer: &mut Agreed, number: u64) -> bool {
    let receiver = &mut peer.channel.receiver;
    let Some(record) = receiver.next().expect("the peer is correct") else {
        return false;
    };
    assert_eq!(record.header(), number.to_ne_bytes());
    assert_eq!(record.payload_length, length_of(number, SMALL_RING / 8));
    let mut payload = vec![0; record.payload_length];
    // SAFETY: the payload is within the record.
    unsafe {
        record.payload().copy_to(
            std::ptr::NonNull::from(&mut payload[..]).cast(),
            payload.len(),
        );
    }
    assert!(payload.iter().all(|byte| *byte == number as u8));
    receiver.release();
    true
}

/// The process that the tests below start: this test does nothing in their own process.
#[test]
fn peer() {
    let Ok(address) = std::env::var(ADDRESS) else {
        return;
    };
    let ip = address.parse().expect("an address");
    let mut dial = Dial::start(end(ip, 2), end(ip, 1), Offer::new(SMALL_RING, 4791))
        .expect("the parent listens");
    sleep_on(dial.as_raw_fd());
    if let Ok(free) = std::env::var(FREE) {
        leave_descriptors(free.parse().expect("a number"));
        let error = dial.poll().expect_err("not all descriptors arrive");
        assert!(matches!(error, DialError::Descriptors { .. }), "{error}");
        return;
    }
    let mut peer = dial.poll().expect("an answer").expect("an answer");
    stream(&mut peer).expect("the parent is correct");
}

/// Lets this process open `free` descriptors and no more.
fn leave_descriptors(free: usize) {
    let open = || std::fs::File::open("/dev/null").expect("opens");
    let least_free: Vec<_> = (0..=free).map(|_| open()).collect();
    let most = least_free[free].as_raw_fd() as libc::rlim_t;
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: a structure of the right type that lives until the return.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(set, 0);
}

/// A peer's process, which ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a peer of `ip`, which streams.
fn start(ip: IpAddr) -> (Process, Agreed) {
    start_by(Command::new(std::env::current_exe().unwrap()), ip)
}

/// Starts a peer of `ip`: `command` runs this program.
fn start_by(mut command: Command, ip: IpAddr) -> (Process, Agreed) {
    let mut door = Door::listen(end(ip, 1)).unwrap();
    command.args(["--exact", "peer"]).stdout(Stdio::null());
    let child = command.env(ADDRESS, ip.to_string()).spawn();
    let mut process = Process(child.unwrap());
    loop {
        assert!(process.0.try_wait().unwrap().is_none(), "it runs");
        std::thread::sleep(Duration::from_millis(1));
        if let Some(call) = door.take() {
            return (
                process,
                call.answer(Offer::new(SMALL_RING, 4791), |_| Ok(()))
                    .unwrap(),
            );
        }
    }
}

/// Returns an address that other runs of the tests do not use.
fn address(test: u8) -> IpAddr {
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    [127, test, high, low.max(1)].into()
}

#[test]
fn what_a_killed_peer_published_arrives_whole_and_then_its_end_is_seen() {
    let (mut process, mut peer) = start(address(121));
    let mut number = 0;
    let mut slept = 0;
    let mut is_there = true;
    let bells = watch(&peer.bell);
    while is_there {
        while receive(&mut peer, number) {
            number += 1;
            if number == 20_000 {
                process.0.kill().unwrap();
            }
        }
        if peer.channel.receiver.flush() {
            peer.bell.ring();
        }
        if !peer.channel.receiver.arm() {
            if peer.channel.receiver.flush() {
                peer.bell.ring();
            }
            slept += 1;
            sleep_on(bells.as_raw_fd());
        }
        peer.channel.receiver.disarm();
        is_there = clear(&peer.bell, &bells);
    }
    while receive(&mut peer, number) {
        number += 1;
    }
    assert!(
        number >= 20_000 && slept > 0,
        "{number} records, slept {slept} times"
    );
}

/// The kernel passes on as many descriptors as the caller may open. This process would signal one that the caller does not have.
#[test]
fn a_caller_that_gets_the_memory_without_the_event_descriptors_has_no_channel() {
    for (free, test) in [(0, 124), (1, 126), (2, 127)] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(FREE, free.to_string());
        let (mut process, peer) = start_by(command, address(test));
        assert!(process.0.wait().unwrap().success(), "{free} descriptors");
        let bells = watch(&peer.bell);
        sleep_on(bells.as_raw_fd());
        assert!(!clear(&peer.bell, &bells), "the channel has ended");
    }
}

/// The peer is in a PID namespace of its own, like a container that shares only the network. With event descriptors it could stop this
/// process, which no system call of the peer can name.
#[test]
fn a_peer_that_does_not_see_this_process_wakes_it_by_the_connection() {
    let mut command = Command::new("unshare");
    command.args(["--map-current-user", "--pid", "--kill-child"]);
    command.arg(std::env::current_exe().unwrap());
    let (_process, mut peer) = start_by(command, address(125));
    let bells = watch(&peer.bell);
    let mut number = 0;
    loop {
        while receive(&mut peer, number) {
            number += 1;
        }
        let is_awake = peer.channel.receiver.arm();
        if peer.channel.receiver.flush() {
            peer.bell.ring();
        }
        if !is_awake {
            break;
        }
        peer.channel.receiver.disarm();
    }
    sleep_on(bells.as_raw_fd());
    assert_eq!(bells.ready(), [peer.bell.as_raw_fd()]);
    assert!(clear(&peer.bell, &bells), "it is there");
}

#[test]
fn a_peer_notices_that_this_process_ended_the_channel() {
    let (mut process, mut peer) = start(address(122));
    for number in 0..100 {
        while !receive(&mut peer, number) {
            if peer.channel.receiver.flush() {
                peer.bell.ring();
            }
            std::thread::yield_now();
        }
    }
    drop(peer);
    assert!(process.0.wait().unwrap().success());
}
