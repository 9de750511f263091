//! An IA with several lanes on the user engine: what belongs to all of its endpoints works in each lane. Two IAs of one process.

use std::time::Duration;

use dat::{
    Access, CompletionFlags, DtoStatus, Ep, EpState, Evd, Event, Ia, Pz, Region, Remote, Streams,
};
use dat_tests::engine::{LINKS, TIMEOUT, connect, with_settings};

const LANES: usize = 3;
/// Twice in each lane.
const ENDPOINTS: usize = 2 * LANES;
const BYTES: usize = 64;
/// Long enough that the other thread sleeps.
const A_WHILE: Duration = Duration::from_millis(30);

/// Runs `body` as the test `name` through shared memory and over UDP. `a` and `b` are IAs with [`LANES`] lanes.
fn with_lanes(name: &str, network: &str, body: impl FnOnce()) {
    let settings = LINKS.map(|near| format!("near={near} lanes={LANES}"));
    let settings = settings.each_ref().map(String::as_str);
    with_settings(name, network, &settings, body);
}

/// An endpoint with an EVD of its own, or with those that it shares.
struct End {
    ep: Ep,
    done: Evd,
    connections: Evd,
}

/// An IA with its endpoints, and memory for all of them.
struct Side {
    ends: Vec<End>,
    memory: Region,
    pz: Pz,
    ia: Ia,
}

fn evd(ia: &Ia, streams: Streams) -> Evd {
    ia.create_evd(64, streams).expect("an EVD")
}

fn endpoint(ia: &Ia, pz: &Pz, received: &Evd, requested: &Evd) -> (Ep, Evd) {
    let connections = evd(ia, Streams::CR | Streams::CONNECTION);
    let builder = ia.endpoint(pz).recv_evd(received).request_evd(requested);
    let ep = builder.connect_evd(&connections).create().expect("an EP");
    (ep, connections)
}

impl Side {
    fn open(name: &str) -> Self {
        let ia = Ia::open(name).expect("the IA opens");
        let pz = ia.create_pz().expect("a PZ");
        let memory = pz.allocate(ENDPOINTS * BYTES, Access::ALL);
        let ends = (0..ENDPOINTS).map(|_| {
            let done = evd(&ia, Streams::DTO);
            let (ep, connections) = endpoint(&ia, &pz, &done, &done);
            End {
                ep,
                done,
                connections,
            }
        });
        Self {
            ends: ends.collect(),
            memory: memory.expect("memory"),
            pz,
            ia,
        }
    }

    /// Opens `a` and `b`, and connects each endpoint of `a` to one of `b` in another lane: only the requests of a third stay in the
    /// lane of the service points.
    fn pair() -> (Self, Self) {
        let (a, mut b) = (Self::open("a"), Self::open("b"));
        b.ends.rotate_left(1);
        for (from, to) in a.ends.iter().zip(&b.ends) {
            connect(
                (&from.ep, &from.connections),
                (&to.ep, &to.connections),
                &b.ia,
            );
        }
        (a, b)
    }

    /// Writes place `n` of the memory to `to` by endpoint `n`. Returns how that ended.
    fn write(&self, n: usize, to: Remote) -> DtoStatus {
        self.post_write(&self.ends[n].ep, n, to, n as u64);
        status(&self.ends[n].done)
    }

    /// Posts a write of place `n` of the memory to `ep`.
    fn post_write(&self, ep: &Ep, n: usize, to: Remote, cookie: u64) {
        let from = [self.memory.slice(n * BYTES..(n + 1) * BYTES)];
        let posted = ep.post_rdma_write(&from, to, cookie, CompletionFlags::empty());
        posted.expect("posted");
    }
}

fn status(evd: &Evd) -> DtoStatus {
    match evd.wait(TIMEOUT).expect("an event") {
        Event::Completion(done) => done.status,
        other => panic!("{other:?}"),
    }
}

/// Returns the number of helper threads.
fn helpers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("listed");
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "dat-softrxe").count()
}

#[test]
fn a_region_has_one_key_in_all_lanes_until_it_is_freed() {
    let name = "a_region_has_one_key_in_all_lanes_until_it_is_freed";
    with_lanes(name, "127.66.44", || {
        let (a, b) = Side::pair();
        assert_eq!(helpers(), 2 * LANES);
        let attributes = a.ia.attributes().expect("attributes");
        let mut all = attributes.named.iter().chain(&attributes.vendor_named);
        let told = all.find(|(name, _)| name == "SOFTRXE_LANES");
        assert_eq!(
            told.map(|(_, number)| number.clone()),
            Some(LANES.to_string())
        );
        for n in 0..ENDPOINTS {
            a.memory.write(n * BYTES, &[n as u8 + 1; BYTES]);
            let to = b.memory.remote(n * BYTES..(n + 1) * BYTES);
            assert_eq!(a.write(n, to), DtoStatus::Success, "{n}");
        }
        let wanted: Vec<u8> = (0..ENDPOINTS * BYTES)
            .map(|at| (at / BYTES) as u8 + 1)
            .collect();
        assert_eq!(b.memory.to_vec(0..ENDPOINTS * BYTES), wanted);
        let to = b.memory.remote(0..BYTES);
        drop(b.memory);
        for n in 0..ENDPOINTS {
            assert_eq!(a.write(n, to), DtoStatus::RemoteAccess, "{n}");
        }
        drop(a);
        drop(b.ends);
        drop((b.pz, b.ia));
        assert_eq!(helpers(), 0);
    });
}

#[test]
fn a_window_of_the_pz_is_open_in_all_lanes_and_closes_in_all() {
    let name = "a_window_of_the_pz_is_open_in_all_lanes_and_closes_in_all";
    with_lanes(name, "127.66.45", || {
        let (a, b) = Side::pair();
        let mut window = b.pz.create_rmr().expect("a window");
        let mut old = None;
        for n in 0..ENDPOINTS {
            // Another endpoint binds it each time.
            let (ep, done) = (&b.ends[n].ep, &b.ends[n].done);
            let open = window.bind(&b.memory, 0..BYTES, Access::REMOTE_WRITE, ep, 1);
            let open = open.expect("posted");
            assert_eq!(status(done), DtoStatus::Success, "{n}");
            a.memory
                .write((ENDPOINTS - 1) * BYTES, &[n as u8 + 1; BYTES]);
            assert_eq!(a.write(ENDPOINTS - 1, open), DtoStatus::Success, "{n}");
            assert_eq!(b.memory.load(BYTES - 1), n as u8 + 1);
            if let Some(old) = old.replace(open) {
                let user = n - 1;
                assert_eq!(a.write(user, old), DtoStatus::RemoteAccess, "{user}");
            }
        }
        let (ep, done) = (&b.ends[ENDPOINTS - 1].ep, &b.ends[ENDPOINTS - 1].done);
        window.unbind(ep, 2).expect("posted");
        assert_eq!(status(done), DtoStatus::Success);
        let open = old.expect("bound");
        assert_eq!(a.write(ENDPOINTS - 1, open), DtoStatus::RemoteAccess);
    });
}

/// A bind that is flushed is executed in no lane of its endpoint, but the others know of it.
#[test]
fn a_failed_bind_leaves_no_lane_behind() {
    let name = "a_failed_bind_leaves_no_lane_behind";
    with_lanes(name, "127.66.50", || {
        let (a, b) = Side::pair();
        let mut window = b.pz.create_rmr().expect("a window");
        let rights = Access::REMOTE_WRITE;
        let old = window.bind(&b.memory, 0..BYTES, rights, &b.ends[0].ep, 1);
        let old = old.expect("posted");
        assert_eq!(status(&b.ends[0].done), DtoStatus::Success);
        // Endpoint 1 breaks, and its bind with it.
        let nowhere = Remote {
            key: !old.key,
            ..old
        };
        assert_eq!(a.write(1, nowhere), DtoStatus::RemoteAccess);
        while b.ends[1].ep.state().expect("a state") == EpState::Connected {
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Ok(flushed) = window.bind(&b.memory, 0..BYTES, rights, &b.ends[1].ep, 2) {
            assert_eq!(status(&b.ends[1].done), DtoStatus::Flushed);
            assert_ne!(flushed.key, old.key);
        }
        let new = window.bind(&b.memory, 0..BYTES, rights, &b.ends[2].ep, 3);
        let new = new.expect("posted");
        assert_eq!(status(&b.ends[2].done), DtoStatus::Success);
        for n in [0, 2, 3, 4, 5] {
            assert_eq!(a.write(n, new), DtoStatus::Success, "{n}");
        }
        // Those of the endpoint whose bind failed, and of the other lanes.
        for n in [4, 0, 2] {
            assert_eq!(a.write(n, old), DtoStatus::RemoteAccess, "{n}");
        }
    });
}

#[test]
fn a_window_of_an_endpoint_is_open_for_its_peer_only() {
    let name = "a_window_of_an_endpoint_is_open_for_its_peer_only";
    with_lanes(name, "127.66.46", || {
        let (a, b) = Side::pair();
        let mut window = b.pz.create_rmr_for_ep().expect("a window");
        let rights = Access::REMOTE_WRITE;
        let open = window.bind(&b.memory, 0..BYTES, rights, &b.ends[0].ep, 1);
        let open = open.expect("posted");
        assert_eq!(status(&b.ends[0].done), DtoStatus::Success);
        for n in 1..ENDPOINTS - 1 {
            assert_eq!(a.write(n, open), DtoStatus::RemoteAccess, "{n}");
        }
        assert_eq!(a.write(0, open), DtoStatus::Success);
        // It is bound, so another endpoint may not bind it.
        let last = &b.ends[ENDPOINTS - 1];
        let again = window.bind(&b.memory, 0..BYTES, rights, &last.ep, 2);
        again.expect("posted");
        assert_ne!(status(&last.done), DtoStatus::Success);
        assert_eq!(a.write(0, open), DtoStatus::Success);
    });
}

#[test]
fn an_evd_serves_endpoints_of_several_lanes() {
    let name = "an_evd_serves_endpoints_of_several_lanes";
    with_lanes(name, "127.66.47", || {
        let (a, b) = (Side::open("a"), Side::open("b"));
        // Its receives take it to the lane of the first EVD, its requests are those of another lane's.
        let (first, second) = (&a.ends[0].done, &a.ends[1].done);
        let (ep, connections) = endpoint(&a.ia, &a.pz, first, second);
        let to = &b.ends[2];
        for (from, to) in [
            ((&ep, &connections), to),
            ((&a.ends[1].ep, &a.ends[1].connections), &b.ends[0]),
        ] {
            connect(from, (&to.ep, &to.connections), &b.ia);
        }
        let into = b.memory.remote(0..BYTES);
        let both = [(&ep, 1), (&a.ends[1].ep, 2)];
        for round in 0..50 {
            for sleeps in [false, true] {
                for (ep, cookie) in both {
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            if sleeps && round % 10 == 0 {
                                std::thread::sleep(A_WHILE);
                            }
                            a.post_write(ep, 0, into, cookie);
                        });
                        let done = second.wait_completion(TIMEOUT).expect("a completion");
                        assert_eq!(done.cookie, cookie);
                    });
                }
            }
            // Both at once, taken one by one.
            for (ep, cookie) in both {
                a.post_write(ep, 0, into, cookie);
            }
            let mut taken: Vec<u64> = Vec::new();
            while taken.len() < both.len() {
                taken.extend(
                    second
                        .poll_completion()
                        .expect("polled")
                        .map(|done| done.cookie),
                );
            }
            taken.sort_unstable();
            assert_eq!(taken, [1, 2]);
        }
    });
}

#[test]
fn a_cno_and_a_threshold_see_the_completions_of_all_lanes() {
    let name = "a_cno_and_a_threshold_see_the_completions_of_all_lanes";
    with_lanes(name, "127.66.51", || {
        let (a, b) = (Side::open("a"), Side::open("b"));
        let cno = a.ia.create_cno().expect("a CNO");
        // The receives take the endpoints to the lanes of other EVDs.
        let shared = a.ia.create_evd_on(&cno, 64, Streams::DTO).expect("an EVD");
        let eps: Vec<(Ep, Evd)> = (0..LANES)
            .map(|n| endpoint(&a.ia, &a.pz, &a.ends[n].done, &shared))
            .collect();
        for ((ep, connections), to) in eps.iter().zip(&b.ends) {
            connect((ep, connections), (&to.ep, &to.connections), &b.ia);
        }
        let into = b.memory.remote(0..BYTES);
        let write = |n: usize| a.post_write(&eps[n].0, 0, into, n as u64);
        for n in (0..LANES).cycle().take(10 * LANES) {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(A_WHILE / 10);
                    write(n);
                });
                let done = loop {
                    if let Some(done) = shared.poll_completion().expect("polled") {
                        break done;
                    }
                    cno.wait(TIMEOUT).expect("woken");
                };
                assert_eq!(done.cookie, n as u64);
            });
        }
        shared.set_cno(None).expect("no CNO");
        for _ in 0..10 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for n in 0..LANES {
                        std::thread::sleep(A_WHILE / 10);
                        write(n);
                    }
                });
                let (_, left) = shared.wait_for(LANES as u32, TIMEOUT).expect("all");
                assert_eq!(left, LANES as u32 - 1);
            });
            for _ in 1..LANES {
                shared.poll_completion().expect("polled").expect("there");
            }
        }
    });
}

#[test]
fn a_thread_waits_on_an_evd_whose_endpoint_is_created_later() {
    let name = "a_thread_waits_on_an_evd_whose_endpoint_is_created_later";
    with_lanes(name, "127.66.48", || {
        let (a, b) = (Side::open("a"), Side::open("b"));
        // So that the next one is not in the first lane.
        let other = evd(&a.ia, Streams::DTO);
        let _other = endpoint(&a.ia, &a.pz, &other, &other);
        let waited = evd(&a.ia, Streams::DTO);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let done = waited.wait_completion(TIMEOUT).expect("a completion");
                assert_eq!(done.cookie, 7);
            });
            std::thread::sleep(A_WHILE);
            let (ep, connections) = endpoint(&a.ia, &a.pz, &waited, &waited);
            let to = &b.ends[0];
            connect((&ep, &connections), (&to.ep, &to.connections), &b.ia);
            std::thread::sleep(A_WHILE);
            a.post_write(&ep, 0, b.memory.remote(0..BYTES), 7);
            waiter.join().expect("woken");
        });
    });
}

#[test]
fn a_shared_receive_queue_serves_endpoints_with_evds_of_other_lanes() {
    let name = "a_shared_receive_queue_serves_endpoints_with_evds_of_other_lanes";
    with_lanes(name, "127.66.49", || {
        let (a, b) = (Side::open("a"), Side::open("b"));
        let srq = b.ia.create_srq(&b.pz, 8, 1).expect("an SRQ");
        let mut served = Vec::new();
        for (n, from) in a.ends.iter().take(LANES).enumerate() {
            let done = &b.ends[n].done;
            let connections = evd(&b.ia, Streams::CR | Streams::CONNECTION);
            let builder = b.ia.endpoint(&b.pz).recv_evd(done).request_evd(done);
            let builder = builder.connect_evd(&connections).srq(&srq);
            let ep = builder.create().expect("an EP");
            connect((&from.ep, &from.connections), (&ep, &connections), &b.ia);
            served.push((ep, connections));
        }
        for n in 0..LANES {
            let into = [b.memory.slice(n * BYTES..(n + 1) * BYTES)];
            srq.post_recv(&into, n as u64).expect("posted");
        }
        for (n, from) in a.ends.iter().take(LANES).enumerate() {
            a.memory.write(0, &[n as u8 + 1; BYTES]);
            let message = [a.memory.slice(0..BYTES)];
            from.ep.post_send(&message, 9).expect("posted");
            let received = b.ends[n].done.wait_completion(TIMEOUT).expect("received");
            assert_eq!(received.cookie, n as u64);
            assert_eq!(b.memory.load(n * BYTES), n as u8 + 1);
            from.done.wait_completion(TIMEOUT).expect("sent");
        }
    });
}
