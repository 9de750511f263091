//! Two engines over a network that loses, duplicates, reorders and corrupts packets: everything arrives exactly once, in
//! order, complete.

mod common;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use common::Rng;
use common::memory::ALL;
use common::pair::{Faults, Pair};
use softrxe_proto::{Counters, Op, Psn, Qpn, Remote, SendRequest, Sge, Status};

const ROUNDS: usize = 40;
const AREA: usize = 20_000;

/// Expected effect of a request.
enum Expect {
    Write { at: usize, data: Vec<u8> },
    Send { data: Vec<u8> },
    Read { at: usize, length: usize, into: Sge },
    Add { before: u64, into: Sge },
}

/// A mix of all operations from one side, with a model of the other side's memory.
struct Script {
    rng: Rng,
    area: Sge,
    counter: Sge,
    model: Vec<u8>,
    total: u64,
    expected: VecDeque<(u64, Expect)>,
    inbox: VecDeque<(Sge, Vec<u8>)>,
}

impl Script {
    fn request(&mut self, pair: &mut Pair, qpns: [Qpn; 2], id: u64) {
        let length = [1, 60, 1024, 3000, 9000][self.rng.below(5) as usize];
        let at = self.rng.below((AREA - length) as u64) as usize;
        let target = Remote {
            address: self.area.address + at as u64,
            key: self.area.key,
        };
        let local = &pair.sides[0].memory;
        let (op, sge, expect) = match self.rng.below(4) {
            0 => {
                let data = self.rng.bytes(length);
                let sge = local.register(data.clone(), ALL);
                (Op::Write(target), sge, Expect::Write { at, data })
            }
            1 => {
                let data = self.rng.bytes(length);
                let sge = local.register(data.clone(), ALL);
                (Op::Send, sge, Expect::Send { data })
            }
            2 => {
                let into = local.register(vec![0; length], ALL);
                (Op::Read(target), into, Expect::Read { at, length, into })
            }
            _ => {
                let into = local.register(vec![0; 8], ALL);
                let remote = Remote {
                    address: self.counter.address,
                    key: self.counter.key,
                };
                let before = self.total;
                self.total += id;
                let op = Op::FetchAdd { remote, add: id };
                (op, into, Expect::Add { before, into })
            }
        };
        if let Expect::Send { data } = &expect {
            let to = pair.sides[1].memory.register(vec![0; data.len()], ALL);
            pair.receive(1, qpns[1], id, &[to]);
            self.inbox.push_back((to, data.clone()));
        }
        pair.post(0, qpns[0], &SendRequest::new(id, op, &[sge]));
        self.expected.push_back((id, expect));
    }

    /// Checks a completed request against the model, which advances in order.
    fn check(&mut self, pair: &Pair, id: u64) {
        let (want, expect) = self.expected.pop_front().expect("completed once");
        assert_eq!(id, want);
        match expect {
            Expect::Write { at, data } => self.model[at..at + data.len()].copy_from_slice(&data),
            Expect::Send { .. } => {}
            Expect::Read { at, length, into } => {
                let got = pair.sides[0].memory.bytes(&into);
                assert_eq!(got, self.model[at..at + length]);
            }
            Expect::Add { before, into } => {
                let got = pair.sides[0].memory.bytes(&into);
                assert_eq!(got, before.to_ne_bytes());
            }
        }
    }
}

/// Returns the counters of the requesting side and of the other one.
fn run(name: &str, seed: u64, faults: Faults) -> [Counters; 2] {
    let mut pair = Pair::with(name, seed, |c| {
        c.ack_timeout = Duration::from_millis(1);
        c.read_chunk = 4;
        c.max_window = [4, 16, 128][seed as usize % 3];
    });
    // Engines of this project in every second run, otherwise engines that take each other for foreign peers.
    pair.own = seed.is_multiple_of(2);
    if seed % 4 < 2 {
        pair.sides[0].memory.lend_payload();
    }
    let qpns = pair.connected_at([Psn::new(0xff_ffe0), Psn::new(0xff_fff0)]);
    pair.faults = faults;
    let area = pair.sides[1].memory.register(vec![0; AREA], ALL);
    let counter = pair.sides[1].memory.register(vec![0; 8], ALL);
    let mut script = Script {
        rng: Rng::new(seed + 1000),
        area,
        counter,
        model: vec![0; AREA],
        total: 0,
        expected: VecDeque::new(),
        inbox: VecDeque::new(),
    };
    // Requests may overtake each other in effect: a READ reads what earlier WRITEs wrote, so the model advances with the
    // completions while a WRITE after a READ waits for it.
    for id in 0..ROUNDS as u64 {
        script.request(&mut pair, qpns, id);
        let fence = script
            .expected
            .back()
            .is_some_and(|(_, e)| matches!(e, Expect::Read { .. } | Expect::Add { .. }));
        if fence {
            pair.run_until(Duration::from_secs(60), |p| {
                p.sides[0].completions.iter().any(|c| c.wr_id == id)
            });
        }
    }
    assert!(
        pair.run_until(Duration::from_secs(60), |p| {
            p.sides[0].completions.len() == ROUNDS
                && p.sides[1].completions.len() == script.inbox.len()
        }),
        "seed {seed}: {} of {ROUNDS} completed, {:?}",
        pair.sides[0].completions.len(),
        pair.sides[0].engine.counters()
    );
    for completion in pair.sides[0].completions.clone() {
        assert_eq!(completion.status, Status::Success, "seed {seed}");
        script.check(&pair, completion.wr_id);
    }
    assert_eq!(pair.sides[1].memory.bytes(&area), script.model);
    assert_eq!(
        pair.sides[1].memory.bytes(&counter),
        script.total.to_ne_bytes()
    );
    for (i, (to, data)) in script.inbox.iter().enumerate() {
        assert_eq!(pair.sides[1].completions[i].length as usize, data.len());
        assert_eq!(&pair.sides[1].memory.bytes(to), data);
    }
    // Run to rest: no timer, no packet, no further completion.
    pair.run();
    assert_eq!(pair.sides[0].completions.len(), ROUNDS);
    [0, 1].map(|side| pair.sides[side].engine.counters())
}

/// Returns the sum of `counter` of both sides over all runs of a mix.
fn sum(runs: &[[Counters; 2]], counter: fn(&Counters) -> u64) -> u64 {
    runs.iter().flatten().map(counter).sum()
}

/// Compares the table of docs/user-engine.md, or writes it with `DAT_BLESS=1`. A row fails if the network did not cause what the row is
/// for.
#[test]
fn every_mix_of_faults() {
    const SEEDS: u64 = 4;
    const HEAD: &str = "| lost | duplicated | delayed | corrupt | packets | wrong ICRC | duplicates | after a gap | timeouts | went back |\n";
    let mut table = format!("{HEAD}{}|\n", "|---:".repeat(10));
    let mut seed = 0;
    for loss in [0, 10, 50, 100, 200] {
        for (duplicate, reorder) in [(0, 0), (100, 0), (0, 100), (100, 100)] {
            for corrupt in [0, 20] {
                let faults = Faults {
                    loss,
                    duplicate,
                    reorder,
                    corrupt,
                };
                let runs: Vec<_> = (0..SEEDS)
                    .map(|_| {
                        seed += 1;
                        run("faults", seed, faults)
                    })
                    .collect();
                let [sent, wrong, twice, gaps, timeouts, back] = [
                    (|c| c.sent) as fn(&Counters) -> u64,
                    |c| c.bad_icrc + c.malformed,
                    |c| c.duplicates,
                    |c| c.out_of_sequence,
                    |c| c.timeouts,
                    |c| c.go_backs,
                ]
                .map(|counter| sum(&runs, counter));
                writeln!(
                    table,
                    "| {} % | {} % | {} % | {} % | {sent} | {wrong} | {twice} | {gaps} | {timeouts} | {back} |",
                    loss / 10,
                    duplicate / 10,
                    reorder / 10,
                    corrupt / 10
                )
                .unwrap();
                assert_eq!(corrupt > 0, wrong > 0, "{faults:?}");
                assert!(duplicate == 0 || twice > 0, "{faults:?}");
                assert!(reorder == 0 || gaps > 0, "{faults:?}");
                assert!(loss < 50 || back > 0, "{faults:?}");
            }
        }
    }
    compare_with_page(HEAD, &table);
}

/// Compares `table`, which begins with `head`, with that of docs/user-engine.md. A package of this crate has no such page.
fn compare_with_page(head: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user-engine.md");
    let Ok(page) = std::fs::read_to_string(&path) else {
        return;
    };
    let (before, rest) = page.split_once(head).expect("the table's head");
    let behind = rest.find("\n\n").expect("the table's end") + 1;
    let new = format!("{before}{table}{}", &rest[behind..]);
    if std::env::var_os("DAT_BLESS").is_some() {
        std::fs::write(path, new).unwrap();
    } else {
        assert_eq!(
            page, new,
            "the page has another table: DAT_BLESS=1 writes it"
        );
    }
}

#[test]
fn a_good_network_needs_no_retransmission() {
    for seed in 0..6 {
        let counters = run("no_faults", seed, Faults::default());
        assert_eq!(sum(&[counters], |c| c.go_backs), 0);
    }
}

#[test]
fn a_bad_network_needs_retransmissions() {
    let faults = Faults {
        loss: 100,
        ..Faults::default()
    };
    assert!(run("bad", 77, faults)[0].go_backs > 0);
}

#[test]
fn atomics_execute_once_however_often_they_arrive() {
    for seed in 0..20 {
        let mut pair = Pair::with("atomic_once", seed, |c| {
            c.ack_timeout = Duration::from_millis(1);
        });
        let [a, _] = pair.connected();
        pair.faults = Faults {
            loss: 150,
            duplicate: 500,
            reorder: 200,
            corrupt: 0,
        };
        let counter = pair.sides[1].memory.register(vec![0; 8], ALL);
        let old = pair.sides[0].memory.register(vec![0; 8 * 30], ALL);
        let remote = Remote {
            address: counter.address,
            key: counter.key,
        };
        for i in 0..30 {
            let into = Sge {
                address: old.address + 8 * i,
                length: 8,
                key: old.key,
            };
            let add = Op::FetchAdd { remote, add: 1 };
            pair.post(0, a, &SendRequest::new(i, add, &[into]));
        }
        assert!(pair.run_until(Duration::from_secs(60), |p| {
            p.sides[0].completions.len() == 30
        }));
        assert_eq!(pair.sides[1].memory.atomics(), 30);
        let values: Vec<u64> = pair.sides[0]
            .memory
            .bytes(&old)
            .chunks(8)
            .map(|b| u64::from_ne_bytes(b.try_into().unwrap()))
            .collect();
        assert_eq!(values, (0..30).collect::<Vec<_>>());
    }
}

#[test]
fn a_read_that_lost_one_response_asks_for_the_rest_only() {
    for lost in 0..8 {
        let mut pair = Pair::new("read_restart");
        let [a, _] = pair.connected();
        let data = Rng::new(3).bytes(8 * 1024);
        let there = pair.sides[1].memory.register(data.clone(), ALL);
        let into = pair.sides[0].memory.register(vec![0; 8 * 1024], ALL);
        let mut seen = 0;
        pair.filter = Box::new(move |packet| {
            if packet.to != 0 {
                return true;
            }
            seen += 1;
            seen != lost + 1
        });
        let remote = Remote {
            address: there.address,
            key: there.key,
        };
        pair.post(0, a, &SendRequest::new(1, Op::Read(remote), &[into]));
        pair.run();
        assert_eq!(pair.sides[0].completions[0].status, Status::Success);
        assert_eq!(pair.sides[0].memory.bytes(&into), data);
        // 8 responses, then again those from the lost one on.
        assert_eq!(pair.sides[1].engine.counters().sent, 8 + (8 - lost));
    }
}

#[test]
fn a_receiver_that_is_not_ready_may_repeat_its_rnr_naks_without_limit() {
    let mut pair = Pair::new("rnr_lost");
    let qpns = pair.connected();
    let local = pair.sides[0].memory.register(vec![3; 100], ALL);
    let inbox = pair.sides[1].memory.register(vec![0; 100], ALL);
    // Every second answer is lost.
    let mut answers = 0;
    pair.filter = Box::new(move |packet| {
        answers += u32::from(packet.to == 0);
        packet.to == 1 || answers % 2 == 0
    });
    pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[local]));
    pair.run_until(Duration::from_secs(30), |_| false);
    assert!(pair.sides[0].engine.counters().timeouts > 20);
    pair.receive(1, qpns[1], 1, &[inbox]);
    let limit = Duration::from_secs(5);
    assert!(pair.run_until(limit, |p| p.sides[0].completions.len() == 1));
    assert_eq!(pair.sides[0].completions[0].status, Status::Success);
    assert_eq!(pair.sides[1].memory.bytes(&inbox), vec![3; 100]);
}
