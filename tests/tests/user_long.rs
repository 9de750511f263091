//! Long messages between two engines of a host: with one copy (`near=auto`), with two (`near=copy`), and by UDP. The bytes are the same, and
//! memory that ended, by the loss of its mapping or with its connection, is neither delivered nor written.

use dat::{Close, CompletionFlags, DtoStatus, Event};
use dat_tests::engine::{Endpoint, Limits, TIMEOUT};

const LENGTH: usize = (1 << 20) + 4100;
const FLAGS: CompletionFlags = CompletionFlags::empty();

/// Runs `test` in a process for each setting of `near`; returns what the processes wrote to stderr. `None` inside of one.
fn each_way(name: &str, network: &str, test: fn()) -> Option<Vec<(&'static str, String)>> {
    if dat_tests::is_inner() {
        test();
        return None;
    }
    let library = dat_tests::softrxe();
    let run = |near| {
        let line = |ia, host| {
            let params = format!("{network}.{host} 0 engine=user near={near}");
            dat_tests::line(ia, &library, &params)
        };
        let (mut inner, _conf) = dat_tests::again(name, &(line("a", 1) + &line("b", 2)));
        let output = inner
            .env("DAT_LOG", "info")
            .output()
            .expect("the test runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "near={near}: {stderr}");
        (near, stderr)
    };
    Some(["auto", "copy", "off"].map(run).into())
}

fn open(name: &str) -> Endpoint {
    let limits = Limits {
        receives: 4,
        requests: 8,
        reads: 4,
        memory: 2 * LENGTH,
    };
    Endpoint::open(name, limits)
}

fn bytes(seed: usize) -> Vec<u8> {
    (0..LENGTH)
        .map(|n| (n / 253 * 17 + n + seed) as u8)
        .collect()
}

fn status(of: &Endpoint) -> DtoStatus {
    match of.completions.wait(TIMEOUT) {
        Ok(Event::Completion(done)) => done.status,
        other => panic!("no completion: {other:?}"),
    }
}

/// Returns the second half of the memory, where data arrives.
fn arrived(at: &Endpoint) -> Vec<u8> {
    let mut all = vec![0; LENGTH];
    at.memory.read(LENGTH, &mut all);
    all
}

fn every_operation() {
    let (a, b) = (open("a"), open("b"));
    a.connect(&b);
    let (first, second) = (0..LENGTH, LENGTH..2 * LENGTH);
    for (round, (from, to)) in [(&a, &b), (&b, &a), (&a, &b)].into_iter().enumerate() {
        // Beginnings and ends of all alignments.
        for (cut, length) in [(0, LENGTH), (1, LENGTH - 2), (7, 16 << 10), (63, 300_001)] {
            let data = bytes(round + cut);
            from.memory.write(0, &data);
            let source = [from
                .memory
                .slice(first.start + cut..first.start + cut + length)];
            let place = second.start + cut..second.start + cut + length;
            let check = |at: &Endpoint, what: &str| {
                let got = arrived(at);
                assert!(
                    got[cut..cut + length] == data[cut..cut + length],
                    "{what} {cut}"
                );
                at.memory.write(LENGTH, &vec![0; LENGTH]);
            };
            let remote = to.memory.remote(place.clone());
            from.ep
                .post_rdma_write(&source, remote, 1, FLAGS)
                .expect("posted");
            assert_eq!(status(from), DtoStatus::Success);
            check(to, "write");

            to.ep
                .post_recv(&[to.memory.slice(place.clone())], 2)
                .expect("posted");
            from.ep.post_send(&source, 3).expect("posted");
            assert_eq!(status(from), DtoStatus::Success);
            assert_eq!(status(to), DtoStatus::Success);
            check(to, "send");

            let remote = from.memory.remote(cut..cut + length);
            let into = [to.memory.slice(place)];
            to.ep
                .post_rdma_read(&into, remote, 4, FLAGS)
                .expect("posted");
            assert_eq!(status(to), DtoStatus::Success);
            check(to, "read");
        }
    }
}

#[test]
fn every_operation_moves_the_same_bytes_with_one_copy_with_two_and_by_udp() {
    let name = "every_operation_moves_the_same_bytes_with_one_copy_with_two_and_by_udp";
    let Some(logs) = each_way(name, "127.66.40", every_operation) else {
        return;
    };
    for (near, log) in logs {
        let lends = log.lines().any(|line| line.contains("lent="));
        // A sandbox may forbid process_vm_readv, which is logged.
        let refused = log.contains("copied twice");
        assert_eq!(lends, near == "auto" && !refused, "near={near}: {log}");
    }
}

/// Bytes that a record lends at most.
const PIECE: usize = 512 << 10;

/// The consumer changes the memory of a request as soon as the request was flushed. A copy that is under way then does not count: the last
/// bytes of each piece of a Write are not written, and no receive completes with the new bytes.
fn flushed() {
    for round in 0..60 {
        let (a, b) = (open("a"), open("b"));
        a.connect(&b);
        a.memory.write(0, &vec![1; LENGTH]);
        let source = [a.memory.slice(0..LENGTH)];
        let sends = round % 2 == 1;
        if sends {
            let inbox = [b.memory.slice(LENGTH..2 * LENGTH)];
            b.ep.post_recv(&inbox, 9).expect("posted");
            a.ep.post_send(&source, 0).expect("posted");
        } else {
            let remote = b.memory.remote(LENGTH..2 * LENGTH);
            a.ep.post_rdma_write(&source, remote, 0, FLAGS)
                .expect("posted");
        }
        for _ in 0..round * 10 {
            std::hint::spin_loop();
        }
        a.ep.disconnect(Close::Abrupt).expect("disconnects");
        status(&a);
        a.memory.write(0, &vec![0xee; LENGTH]);
        let event = b.connections.wait(TIMEOUT).expect("an event");
        assert!(matches!(event, Event::Ended { .. }), "{event:?}");
        if sends {
            let whole = status(&b) == DtoStatus::Success;
            let good = arrived(&b).iter().all(|byte| *byte == 1);
            assert!(good || !whole, "round {round}");
            continue;
        }
        let got = arrived(&b);
        let ends = (PIECE..LENGTH).step_by(PIECE).chain([LENGTH]);
        for end in ends {
            assert!(!got[end - 8..end].contains(&0xee), "round {round}, {end}");
        }
    }
}

#[test]
fn memory_of_a_flushed_request_is_not_delivered() {
    let name = "memory_of_a_flushed_request_is_not_delivered";
    each_way(name, "127.66.41", flushed);
}

/// Part of a long message's memory is not mapped any more.
fn lost() {
    let (whole, page) = (0..LENGTH, 4096);
    for at_source in [true, false] {
        let (a, b) = (open("a"), open("b"));
        a.connect(&b);
        let loser = if at_source { &a } else { &b };
        let address = loser.memory.remote(0..1).address as usize;
        let middle = (address + LENGTH / 2).next_multiple_of(page) as *mut libc::c_void;
        // SAFETY: pages inside an allocation of this test, which are put back before it is freed.
        unsafe { assert_eq!(libc::munmap(middle, 2 * page), 0) };
        let source = [a.memory.slice(whole.clone())];
        let remote = b.memory.remote(whole.clone());
        a.ep.post_rdma_write(&source, remote, 1, FLAGS)
            .expect("posted");
        let expected = if at_source {
            DtoStatus::LocalProtection
        } else {
            DtoStatus::RemoteResponder
        };
        let found = status(&a);
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: where pages were taken away above.
        unsafe { assert_eq!(libc::mmap(middle, 2 * page, rights, flags, -1, 0), middle) };
        assert_eq!(found, expected, "at the source: {at_source}");
    }
}

#[test]
fn a_long_message_whose_memory_is_lost_ends_its_connection_and_not_the_process() {
    let name = "a_long_message_whose_memory_is_lost_ends_its_connection_and_not_the_process";
    each_way(name, "127.66.42", lost);
}
