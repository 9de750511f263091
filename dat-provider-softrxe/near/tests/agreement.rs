//! Agreement of two engines through real sockets, and with peers that break it.

mod peer;

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use dat_os::eventfd::EventFd;
use peer::{end, memory};
use softrxe_near::agreement::hello::{Hello, HelloError, Packet, Reason};
use softrxe_near::agreement::{
    ANY_GUID, Agreed, AnswerError, Bell, Call, Dial, DialError, Door, End, Offer,
};
use softrxe_near::layout::CONTROL;
use softrxe_near::{LARGE_RING, MapError, SMALL_RING};
use softrxe_port::fork::CloseOnFork;
use softrxe_port::listener::Listener;
use softrxe_port::own_user;
use softrxe_port::packets::{self, Incoming};
use softrxe_port::poll_set::PollSet;

fn answered(dial: &mut Dial) -> Agreed {
    dial.poll().unwrap().expect("an answer waits")
}

/// `one` calls `other`, whose door is this, and gets a channel.
fn agree(door: &mut Door, one: End, other: End) {
    let offer = Offer::new(SMALL_RING, 4791);
    let mut dial = Dial::start(one, other, offer).unwrap();
    let _there = door.take().unwrap().answer(offer, |_| Ok(())).unwrap();
    answered(&mut dial);
}

fn receive_byte(agreed: &mut Agreed) -> Option<u8> {
    let record = agreed.channel.receiver.next().unwrap()?;
    agreed.channel.receiver.release();
    Some(record.header()[0])
}

#[test]
fn two_engines_agree_and_notice_the_end() {
    let (one, other) = (end(101, 1), end(101, 2));
    let mut door = Door::listen(other).unwrap();
    assert!(door.take().is_none());
    let mut dial = Dial::start(one, other, Offer::new(LARGE_RING, 4791)).unwrap();
    assert!(dial.poll().unwrap().is_none());
    let call = door.take().unwrap();
    assert_eq!((call.peer(), dial.peer()), (one, other));
    let mut there = call
        .answer(Offer::new(SMALL_RING, 4792), |_| Ok(()))
        .unwrap();
    let mut here = answered(&mut dial);
    assert_eq!((here.port, there.port), (4792, 4791), "the peer's");
    assert!(matches!(dial.poll(), Err(DialError::Closed)), "it is over");
    assert_eq!(
        here.channel.sender.mtu(),
        SMALL_RING / 8,
        "the smaller ring"
    );
    for byte in 1..10 {
        here.channel.sender.space().unwrap();
        here.channel.sender.commit(&[byte], 24, 0);
        assert!(!there.channel.receiver.arm());
        assert!(here.channel.sender.publish());
        here.bell.ring();
        assert!(clear(&there.bell));
        there.channel.receiver.disarm();
        assert_eq!(receive_byte(&mut there), Some(byte));
    }
    drop(here);
    assert!(!clear(&there.bell));
}

/// Silent connections before the calls take places, which the calls get.
#[test]
fn all_of_120_calls_that_wait_at_once_are_taken() {
    const CALLS: u16 = 120;
    let other = end(116, 0);
    let mut door = Door::listen(other).unwrap();
    let call = |slot| Dial::start(end(116, slot), other, Offer::new(SMALL_RING, 4791)).unwrap();
    for silent in [0, 1, 70] {
        let role = format!("near/{}", other.slot);
        let connect = |_| own_user::connect(other.ip, &role).unwrap();
        let _silent: Vec<_> = (0..silent).map(connect).collect();
        let _calls: Vec<_> = (1..=CALLS).map(call).collect();
        let mut peers = Vec::new();
        // One look accepts some of them.
        for _ in 0..4 {
            while let Some(call) = door.take() {
                peers.push(call.peer().slot);
            }
        }
        assert!(peers.into_iter().eq(1..=CALLS), "{silent} are silent");
    }
}

#[test]
fn a_call_to_an_address_and_slot_learns_the_guid() {
    let (one, other) = (end(111, 1), end(111, 2));
    let mut door = Door::listen(other).unwrap();
    let guid = ANY_GUID;
    let mut dial = Dial::start(one, End { guid, ..other }, Offer::new(SMALL_RING, 4791)).unwrap();
    let call = door.take().unwrap();
    assert_eq!((call.peer(), dial.peer().guid), (one, ANY_GUID));
    let _there = call
        .answer(Offer::new(SMALL_RING, 4791), |_| Ok(()))
        .unwrap();
    let _here = answered(&mut dial);
    assert_eq!(dial.peer(), other);
}

#[test]
fn many_wake_ups_neither_block_nor_fail() {
    let ways = [(true, true), (true, false), (false, true)];
    for (slot, (own, peers)) in (2..).zip(ways) {
        let (one, other) = (end(102, 1), end(102, slot));
        let offer = |events| Offer {
            events,
            ..Offer::new(SMALL_RING, 4791)
        };
        let mut door = Door::listen(other).unwrap();
        let mut dial = Dial::start(one, other, offer(own)).unwrap();
        let there = door
            .take()
            .unwrap()
            .answer(offer(peers), |_| Ok(()))
            .unwrap();
        let here = answered(&mut dial);
        for (from, to) in [(&here.bell, &there.bell), (&there.bell, &here.bell)] {
            let ready = PollSet::new().unwrap();
            to.watch(&ready).unwrap();
            assert!(!ready.is_readable());
            (0..10_000).for_each(|_| from.ring());
            // Event descriptors are used where both sides offer them.
            let by_connection = ready.ready().contains(&to.as_raw_fd());
            assert_eq!(by_connection, !(own && peers));
            while ready.is_readable() {
                assert!(clear(to));
            }
            to.unwatch(&ready);
            from.ring();
            assert!(!ready.is_readable());
        }
    }
}

/// Takes the wake-ups of the descriptors that are readable. Returns whether the peer is there.
fn clear(bell: &Bell) -> bool {
    let ready = PollSet::new().unwrap();
    bell.watch(&ready).unwrap();
    let all = ready.ready();
    all.iter().all(|fd| bell.clear(*fd).unwrap())
}

#[test]
fn a_call_is_refused_with_a_reason() {
    let (one, other) = (end(103, 1), end(103, 2));
    let mut door = Door::listen(other).unwrap();
    let mut dial = Dial::start(one, other, Offer::new(SMALL_RING, 4791)).unwrap();
    door.take().unwrap().refuse(Reason::Crossed);
    let error = dial.poll().unwrap_err();
    assert!(matches!(error, DialError::Refused(Reason::Crossed)));
    // Another adapter of the slot.
    let guid = other.guid + 1;
    let mut dial = Dial::start(one, End { guid, ..other }, Offer::new(SMALL_RING, 4791)).unwrap();
    assert!(door.take().is_none());
    let error = dial.poll().unwrap_err();
    assert!(matches!(error, DialError::Refused(Reason::Addressee)));
    // A size that cannot be mapped.
    let mut dial = Dial::start(one, other, Offer::new(5000, 4791)).unwrap();
    let error = door
        .take()
        .unwrap()
        .answer(Offer::new(SMALL_RING, 4791), |_| Ok(()))
        .unwrap_err();
    assert!(matches!(error, AnswerError::Map(MapError::Size(5000))));
    let error = dial.poll().unwrap_err();
    assert!(matches!(error, DialError::Refused(Reason::Full)));
    // The engine ends with a call in its queue.
    let mut dial = Dial::start(one, other, Offer::new(SMALL_RING, 4791)).unwrap();
    drop(door);
    assert!(matches!(dial.poll(), Err(DialError::Closed)));
    let error = Dial::start(one, other, Offer::new(SMALL_RING, 4791)).unwrap_err();
    let DialError::Connection { peer, error } = error else {
        panic!("{error}");
    };
    assert_eq!((peer, error.kind()), (other, ErrorKind::ConnectionRefused));
}

#[test]
fn a_call_whose_wake_ups_cannot_be_watched_is_refused() {
    let (one, other) = (end(119, 1), end(119, 2));
    let mut door = Door::listen(other).unwrap();
    let mut dial = Dial::start(one, other, Offer::new(SMALL_RING, 4791)).unwrap();
    let call = door.take().unwrap();
    let answered = call.answer(Offer::new(SMALL_RING, 4791), |_| {
        Err(ErrorKind::StorageFull.into())
    });
    assert!(matches!(answered, Err(AnswerError::Watch(_))));
    let error = dial.poll().unwrap_err();
    assert!(matches!(error, DialError::Refused(Reason::Full)), "{error}");
}

#[test]
fn each_name_has_one_engine() {
    let own = end(104, 1);
    let doors = [(); 2].map(|()| Door::listen(own).unwrap());
    // Both names are taken, but not the one of another GUID.
    let error = Door::listen(own).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let guid = own.guid + 1;
    Door::listen(End { guid, ..own }).unwrap();
    drop(doors);
    // As in `listen`.
    while let Err(error) = Door::listen(own) {
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns what the door answers to `packet`.
fn reply(door: &mut Door, to: End, packet: &[u8]) -> Option<Packet> {
    let connection = own_user::connect(to.ip, &format!("near/{}", to.slot)).unwrap();
    packets::send(connection.as_fd(), packet, &[]).unwrap();
    assert!(door.take().is_none());
    let mut bytes = [0; 65];
    match packets::receive(connection.as_fd(), &mut bytes, true).unwrap() {
        Incoming::Packet(length, _) => Some(Packet::decode(&bytes[..length]).unwrap()),
        Incoming::Closed | Incoming::Empty => None,
    }
}

#[test]
fn a_wrong_hello_is_refused_and_the_next_call_is_served() {
    let (one, other) = (end(105, 1), end(105, 2));
    let mut door = Door::listen(other).unwrap();
    let good = Packet::Call(Hello::new(one, other.guid, Offer::new(SMALL_RING, 4791)));
    let refused = Some(Packet::Refusal(Reason::Version));
    let mut version = good.encode();
    version[8] ^= 0x10;
    let mut mtu = good.encode();
    mtu[20] ^= 1;
    let mut magic = good.encode();
    magic[0] ^= 1;
    let answer = Packet::Answer(Hello::new(one, other.guid, Offer::new(SMALL_RING, 4791))).encode();
    for wrong in [
        &version[..],
        &mtu,
        &magic,
        &answer,
        &[7],
        &good.encode()[..63],
    ] {
        assert_eq!(reply(&mut door, other, wrong), refused, "{wrong:?}");
    }
    assert_eq!(reply(&mut door, other, &[]), None, "closed");
    let _silent = own_user::connect(other.ip, "near/2").unwrap();
    agree(&mut door, one, other);
}

#[test]
fn callers_that_say_nothing_do_not_keep_others_out() {
    let (one, other) = (end(106, 1), end(106, 2));
    let mut door = Door::listen(other).unwrap();
    let silent: Vec<_> = (0..100)
        .map(|_| own_user::connect(other.ip, "near/2").unwrap())
        .collect();
    assert!(door.take().is_none());
    agree(&mut door, one, other);
    drop(silent);
    assert!(door.take().is_none());
    let ready = PollSet::new().unwrap();
    ready.add(door.as_raw_fd()).unwrap();
    assert!(
        !ready.is_readable(),
        "closed connections are out of the set"
    );
}

/// Dials a peer that answers with `answer` and `descriptors`.
fn dial_wrong_peer(test: u8, answer: &[u8], descriptors: &[RawFd]) -> DialError {
    dial_wrong(end(test, 2), answer, descriptors)
}

/// Listens as `other`. The thread that closes what was refused before has the descriptors of the process for a moment, and with them the name.
fn listen(other: End, ready: &Arc<PollSet>) -> Listener {
    loop {
        match own_user::listen(other.ip, "near/2", Arc::clone(ready)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                std::thread::sleep(Duration::from_millis(1));
            }
            listener => return listener.unwrap(),
        }
    }
}

/// Dials `other`, which answers with `answer` and `descriptors`.
fn dial_wrong(other: End, answer: &[u8], descriptors: &[RawFd]) -> DialError {
    let offer = Offer::new(SMALL_RING, 4791);
    let (mut dial, _there) = call_that_is_answered(other, offer, answer, descriptors);
    dial.poll().unwrap_err()
}

/// Returns a call of `other` with `offer` whose answer has not been read, and the other end of its connection.
fn call_that_is_answered(
    other: End,
    offer: Offer,
    answer: &[u8],
    descriptors: &[RawFd],
) -> (Dial, CloseOnFork<OwnedFd>) {
    let one = End {
        slot: 1,
        guid: 0x1001,
        ..other
    };
    let ready = Arc::new(PollSet::new().unwrap());
    let listener = listen(other, &ready);
    let dial = Dial::start(one, other, offer).unwrap();
    assert!(listener.accept());
    let connection = listener.take().unwrap();
    packets::send(connection.as_fd(), answer, descriptors).unwrap();
    (dial, connection)
}

#[test]
fn an_answer_with_wrong_memory_is_refused() {
    let (one, other) = (end(107, 1), end(107, 2));
    let offers = |ring, events| {
        let offer = Offer {
            events,
            ..Offer::new(ring, 4791)
        };
        Packet::Answer(Hello::new(other, one.guid, offer)).encode()
    };
    let answer = |ring| offers(ring, false);
    let good = answer(SMALL_RING);
    let length = 2 * (CONTROL + SMALL_RING) as i64;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    for missing in [libc::F_SEAL_SHRINK, libc::F_SEAL_GROW, libc::F_SEAL_SEAL] {
        let unsealed = memory(length, seals & !missing);
        let error = dial_wrong_peer(107, &good, &[unsealed.as_raw_fd()]);
        assert!(
            matches!(error, DialError::Map(MapError::Seals { found }) if found & missing == 0),
            "{error}"
        );
    }
    for wrong in [0, length - 1, length + 1, 2 * length] {
        let error = dial_wrong_peer(107, &good, &[memory(wrong, seals).as_raw_fd()]);
        assert!(
            matches!(error, DialError::Map(MapError::Length { found, .. }) if found == wrong as u64),
            "{error}"
        );
    }
    // Memory that cannot be written, and a descriptor that is no memory.
    let sealed = memory(length, seals | libc::F_SEAL_WRITE);
    let null = std::fs::File::open("/dev/null").unwrap();
    for fd in [sealed.as_raw_fd(), null.as_raw_fd()] {
        let error = dial_wrong_peer(107, &good, &[fd]);
        assert!(
            matches!(error, DialError::Map(MapError::Call { .. })),
            "{error}"
        );
    }
    let sealed = memory(length, seals);
    // More or fewer descriptors than the answer states.
    for (events, wrong) in [(false, &[0, 2, 3][..]), (true, &[0, 1, 2])] {
        for count in wrong {
            let fds = vec![sealed.as_raw_fd(); *count];
            let error = dial_wrong_peer(107, &offers(SMALL_RING, events), &fds);
            assert!(
                matches!(error, DialError::Descriptors { found, .. } if found == *count),
                "{error}"
            );
        }
    }
    // Wake-ups that are always readable, or lead to the caller itself.
    let (reader, writer) = std::io::pipe().unwrap();
    let (set, one_end) = (PollSet::new().unwrap(), UnixStream::pair().unwrap().0);
    for wrong in [
        reader.as_raw_fd(),
        writer.as_raw_fd(),
        set.as_raw_fd(),
        one_end.as_raw_fd(),
    ] {
        let fds = [sealed.as_raw_fd(), wrong, wrong];
        let error = dial_wrong_peer(107, &offers(SMALL_RING, true), &fds);
        assert!(matches!(error, DialError::NoEvents), "{error}");
    }
    // An event descriptor that stays readable for 4 billion reads.
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE;
    // SAFETY: no pointers are involved; the descriptor is new and has no other owner.
    let counts_down = unsafe { OwnedFd::from_raw_fd(libc::eventfd(u32::MAX, flags)) };
    let fds = [&sealed, &counts_down, &counts_down].map(AsRawFd::as_raw_fd);
    let error = dial_wrong_peer(107, &offers(SMALL_RING, true), &fds);
    assert!(matches!(error, DialError::NoEvents), "{error}");
    // Wake-ups that were not asked for: they would make this process wait where the peer wants.
    let event = EventFd::new().unwrap();
    let fds = [sealed.as_raw_fd(), event.as_raw_fd(), event.as_raw_fd()];
    let without = Offer {
        events: false,
        ..Offer::new(SMALL_RING, 4791)
    };
    let (mut dial, _there) = call_that_is_answered(other, without, &offers(SMALL_RING, true), &fds);
    let error = dial.poll().unwrap_err();
    assert!(matches!(error, DialError::NotOffered), "{error}");
    for wrong in [LARGE_RING, 0, 64, 65_535] {
        let error = dial_wrong_peer(107, &answer(wrong), &[sealed.as_raw_fd()]);
        assert!(
            matches!(error, DialError::Map(MapError::Size(_))),
            "{wrong}: {error}"
        );
    }
}

#[test]
fn an_answer_of_another_peer_or_version_is_refused() {
    let (one, other) = (end(108, 1), end(108, 2));
    let sealed = memory(1, 0);
    let dial = |packet: &[u8]| dial_wrong_peer(108, packet, &[sealed.as_raw_fd()]);
    let answer =
        |from, to| Packet::Answer(Hello::new(from, to, Offer::new(SMALL_RING, 4791))).encode();
    for (from, to) in [
        (End { guid: 7, ..other }, one.guid),
        (End { slot: 7, ..other }, one.guid),
        (
            End {
                ip: [127, 0, 0, 1].into(),
                ..other
            },
            one.guid,
        ),
        (other, one.guid + 1),
    ] {
        let error = dial(&answer(from, to));
        assert!(matches!(error, DialError::Peer { .. }), "{error}");
        // With any GUID, that of the answer is right.
        let any = End {
            guid: ANY_GUID,
            ..other
        };
        let error = dial_wrong(any, &answer(from, to), &[sealed.as_raw_fd()]);
        let only_guid = from == End { guid: 7, ..other };
        assert_eq!(matches!(error, DialError::Peer { .. }), !only_guid);
    }
    let mut version = answer(other, one.guid);
    version[8] ^= 0x10;
    let error = dial(&version);
    assert!(
        matches!(error, DialError::Hello(HelloError::Version(_))),
        "{error}"
    );
    let call = Packet::Call(Hello::new(other, one.guid, Offer::new(SMALL_RING, 4791))).encode();
    let error = dial(&call);
    assert!(
        matches!(error, DialError::Hello(HelloError::Foreign(64))),
        "{error}"
    );
}

/// Runs `act` in a thread of another user. Returns `None` if this process may not become one.
fn as_another_user<T: Send>(act: impl FnOnce() -> T + Send) -> Option<T> {
    let keep = u32::MAX;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: a plain system call, which changes this thread only, unlike libc's function.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, keep, 65_000, keep) };
            (changed == 0).then(act)
        });
        thread.join().unwrap()
    })
}

/// Returns a socket for packets that listens at, or is connected to, an abstract name.
fn packet_socket(name: &str, listens: bool) -> OwnedFd {
    // SAFETY: plain system calls; the address lives until they return and contains the name.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
        let socket = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        let length = (3 + name.len()) as libc::socklen_t;
        let at = (&raw const address).cast();
        if listens {
            assert_eq!(libc::bind(fd, at, length), 0);
            assert_eq!(libc::listen(fd, 8), 0);
        } else {
            assert_eq!(libc::connect(fd, at, length), 0);
        }
        socket
    }
}

#[test]
fn processes_of_another_user_get_no_channel() {
    let (one, other) = (end(109, 1), end(109, 2));
    let name = softrxe_port::names::user_name(other.ip, "near/2");
    let Some(squatter) = as_another_user(|| packet_socket(&name, true)) else {
        dat_untested::untested("this process may not become another user");
        return;
    };
    let error = Dial::start(one, other, Offer::new(SMALL_RING, 4791)).unwrap_err();
    let DialError::Connection { error, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    drop(squatter);
    let mut door = Door::listen(other).unwrap();
    let dial = as_another_user(|| packet_socket(&name, false)).unwrap();
    let hello = Packet::Call(Hello::new(one, other.guid, Offer::new(SMALL_RING, 4791)));
    packets::send(dial.as_fd(), &hello.encode(), &[]).unwrap();
    assert!(door.take().is_none());
    let received = packets::receive(dial.as_fd(), &mut [0; 65], true).unwrap();
    assert!(matches!(received, Incoming::Closed), "{received:?}");
}

#[test]
fn an_engine_whose_name_is_taken_is_called_by_its_guid() {
    let (one, other) = (end(112, 1), end(112, 2));
    let name = softrxe_port::names::user_name(other.ip, "near/2");
    let _squatter = packet_socket(&name, true);
    let mut door = Door::listen(other).unwrap();
    agree(&mut door, one, other);
    let offer = Offer::new(SMALL_RING, 4791);
    // A call for datagrams knows no GUID.
    let guid = ANY_GUID;
    let mut dial = Dial::start(one, End { guid, ..other }, offer).unwrap();
    assert!(door.take().is_none() && dial.poll().unwrap().is_none());
    // One with another GUID is for another engine, and the squatter has its name.
    let guid = other.guid + 1;
    let mut dial = Dial::start(one, End { guid, ..other }, offer).unwrap();
    assert!(door.take().is_none() && dial.poll().unwrap().is_none());
}

/// A program that has learned the GUID of an engine can take the name that this one does not need.
#[test]
fn a_name_with_the_guid_that_is_taken_later_stops_no_call() {
    let (one, other) = (end(114, 1), end(114, 2));
    let mut door = Door::listen(other).unwrap();
    let role = format!("near/2/{:016x}", other.guid);
    let name = softrxe_port::names::user_name(other.ip, &role);
    // A listener whose queue is full.
    let squatter = packet_socket(&name, true);
    let fill = || own_user::connect(other.ip, &role).ok();
    let queued: Vec<_> = std::iter::from_fn(fill).collect();
    assert!(!queued.is_empty());
    agree(&mut door, one, other);
    drop((squatter, queued));
    // Another user's listener.
    let Some(_squatter) = as_another_user(|| packet_socket(&name, true)) else {
        dat_untested::untested("this process may not become another user");
        return;
    };
    agree(&mut door, one, other);
}

#[test]
fn a_call_is_known_by_its_caller() {
    let (one, other) = (end(110, 1), end(110, 2));
    let mut door = Door::listen(other).unwrap();
    let _dial = Dial::start(one, other, Offer::new(SMALL_RING, 4791)).unwrap();
    let _second = Dial::start(End { slot: 3, ..one }, other, Offer::new(SMALL_RING, 4791)).unwrap();
    let callers: Vec<End> = std::iter::from_fn(|| door.take())
        .map(|call: Call| call.peer())
        .collect();
    assert_eq!(callers, [one, End { slot: 3, ..one }]);
}
