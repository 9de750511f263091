//! Models of both sides of a ring, which loom runs in every order of their threads.

use std::sync::Arc;

use dat_loom::{Watched, explore, futex, thread, yield_now};

use super::*;

const RECORD: u64 = 64;

/// The data of a ring of records of one line: the seal of each place, and its payload.
struct Data {
    seals: Vec<AtomicU64>,
    payload: Vec<Watched<u64>>,
}

impl Data {
    fn new(records: u64) -> Self {
        let data = Self {
            seals: (0..records).map(|_| AtomicU64::new(0)).collect(),
            payload: (0..records).map(|_| Watched::new(0)).collect(),
        };
        for seal in &data.seals {
            seal.load(Ordering::Relaxed);
        }
        data
    }

    fn index(&self, position: u64) -> usize {
        (position / RECORD) as usize % self.seals.len()
    }

    fn payload(&self, position: u64) -> &Watched<u64> {
        &self.payload[self.index(position)]
    }
}

impl SealWords for Data {
    fn load(&self, position: u64) -> u64 {
        self.seals[self.index(position)].load(Ordering::Acquire)
    }

    fn store(&self, position: u64, seal: u64) {
        self.seals[self.index(position)].store(seal, Ordering::Release);
    }
}

/// A ring, its data, and what wakes its two processes.
struct Shared {
    lines: Lines,
    /// The ring in the other direction, of which only the flag `asleep` is used.
    opposite: Lines,
    size: u64,
    data: Data,
    consumer_bell: AtomicU32,
    producer_bell: AtomicU32,
}

fn lines() -> Lines {
    let lines = Lines {
        secret: AtomicU64::new(0x1234_5678),
        rest_0: [const { AtomicU8::new(0) }; LINE - 8],
        freed: AtomicU64::new(0),
        rest_1: [const { AtomicU8::new(0) }; LINE - 8],
        asleep: AtomicU32::new(0),
        rest_2: [const { AtomicU8::new(0) }; LINE - 4],
        starved: AtomicU64::new(0),
        rest_3: [const { AtomicU8::new(0) }; LINE - 8],
        nonce: [AtomicU64::new(0), AtomicU64::new(0)],
        nonce_at: AtomicU64::new(0),
        copy_time: AtomicU32::new(0),
        rest_4: [const { AtomicU8::new(0) }; LINE - 28],
        pulls: AtomicU32::new(0),
        rest_5: [const { AtomicU8::new(0) }; LINE - 4],
        withdrawn: AtomicU64::new(0),
        rest_6: [const { AtomicU8::new(0) }; LINE - 8],
    };
    // Loom takes the first use for a write, so it is here.
    lines.secret.load(Ordering::Relaxed);
    lines.freed.load(Ordering::Relaxed);
    lines.asleep.load(Ordering::Relaxed);
    lines.starved.load(Ordering::Relaxed);
    lines
}

fn shared(records: u64) -> Arc<Shared> {
    let shared = Shared {
        lines: lines(),
        opposite: lines(),
        size: records * RECORD,
        data: Data::new(records),
        consumer_bell: AtomicU32::new(0),
        producer_bell: AtomicU32::new(0),
    };
    shared.consumer_bell.load(Ordering::Relaxed);
    shared.producer_bell.load(Ordering::Relaxed);
    Arc::new(shared)
}

fn ring(bell: &AtomicU32) {
    bell.store(1, Ordering::Release);
    futex::wake_all(bell);
}

/// Sleeps until the bell rings, as ppoll(2) on the connection does.
fn sleep(bell: &AtomicU32) {
    futex::wait(bell, 0);
    bell.swap(0, Ordering::AcqRel);
}

impl Shared {
    fn producer(&self) -> Producer {
        Producer::new(self.size, Sealer::new(&self.lines))
    }

    fn consumer(&self) -> Consumer {
        Consumer::new(self.size, Sealer::new(&self.lines))
    }

    /// Adds a record if there is room.
    fn add(&self, producer: &mut Producer, value: u64) -> bool {
        let room = producer.room(&self.lines, RECORD);
        if room.expect("the consumer is correct") < RECORD {
            return false;
        }
        self.data.payload(producer.position()).write(value);
        producer.add(&self.data, RECORD);
        true
    }

    fn publish(&self, producer: &mut Producer) {
        if producer.publish(&self.lines, &self.data) {
            ring(&self.consumer_bell);
        }
    }

    fn starve(&self, producer: &mut Producer) -> bool {
        let found = producer.starve(&self.lines, RECORD);
        found.expect("the consumer is correct")
    }

    /// Adds a record, after a sleep if there is no room. Nothing comes from the other side meanwhile.
    fn add_after_sleep(&self, producer: &mut Producer, value: u64) {
        let empty = Data::new(1);
        let receiver = Consumer::new(self.size, Sealer::new(&self.opposite));
        while !self.add(producer, value) {
            assert!(!receiver.arm(&self.opposite, &empty));
            if !self.starve(producer) {
                sleep(&self.producer_bell);
            }
            receiver.disarm(&self.opposite);
        }
    }

    fn take(&self, consumer: &mut Consumer) -> Option<u64> {
        if !consumer.is_published(&self.data) {
            return None;
        }
        let value = self.data.payload(consumer.position()).read();
        consumer.release(&self.lines, RECORD, false);
        Some(value)
    }

    fn flush(&self, consumer: &mut Consumer) {
        if consumer.flush(&self.lines, &self.data, &self.opposite) {
            ring(&self.producer_bell);
        }
    }

    /// Takes a record, after a sleep if there is none.
    fn take_after_sleep(&self, consumer: &mut Consumer) -> u64 {
        loop {
            if let Some(value) = self.take(consumer) {
                return value;
            }
            self.flush(consumer);
            let arrived = consumer.arm(&self.lines, &self.data);
            self.flush(consumer);
            if !arrived {
                sleep(&self.consumer_bell);
            }
            consumer.disarm(&self.lines);
        }
    }
}

/// Both sides poll. With one slot, the second record overwrites the first one.
fn two_records(slots: u64) {
    let shared = shared(slots);
    let there = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        let mut producer = there.producer();
        for value in [7, 8] {
            while !there.add(&mut producer, value) {
                yield_now();
            }
            there.publish(&mut producer);
        }
    });
    let mut consumer = shared.consumer();
    for value in [7, 8] {
        let taken = loop {
            match shared.take(&mut consumer) {
                Some(taken) => break taken,
                None => yield_now(),
            }
        };
        assert_eq!(taken, value);
        shared.flush(&mut consumer);
    }
    thread.join().expect("the producer ended well");
    assert_eq!(shared.take(&mut consumer), None);
}

/// Two records are one run. The seal of the second one is there before that of the first one.
#[test]
fn a_run_is_published_whole() {
    explore(3, || {
        let shared = shared(2);
        let there = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut producer = there.producer();
            for value in [7, 8] {
                assert!(there.add(&mut producer, value));
            }
            there.publish(&mut producer);
        });
        let mut consumer = shared.consumer();
        while shared.take(&mut consumer).is_none_or(|taken| taken != 7) {
            yield_now();
        }
        assert_eq!(shared.take(&mut consumer), Some(8), "in one step");
        thread.join().expect("the producer ended well");
    });
}

#[test]
fn two_records_arrive_whole_once_and_in_order() {
    explore(3, || two_records(2));
}

#[test]
fn a_record_is_overwritten_only_after_it_was_read() {
    explore(3, || two_records(1));
}

/// A consumer that sleeps without records takes two. With `exposes` the producer shows each to a consumer that is awake before it tests
/// whether the consumer sleeps.
fn two_records_for_a_sleeper(exposes: bool) {
    let shared = shared(2);
    let there = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        let mut producer = there.producer();
        for value in [7, 8] {
            assert!(there.add(&mut producer, value));
            if exposes {
                producer.expose(&there.data);
            }
            there.publish(&mut producer);
        }
    });
    let mut consumer = shared.consumer();
    assert_eq!(shared.take_after_sleep(&mut consumer), 7);
    assert_eq!(shared.take_after_sleep(&mut consumer), 8);
    thread.join().expect("the producer ended well");
}

#[test]
fn no_consumer_sleeps_beside_a_published_record() {
    explore(3, || two_records_for_a_sleeper(false));
}

#[test]
fn no_consumer_sleeps_beside_a_record_that_was_exposed_and_then_published() {
    explore(3, || two_records_for_a_sleeper(true));
}

#[test]
fn no_producer_starves_beside_room() {
    explore(2, || {
        let shared = shared(1);
        let there = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut producer = there.producer();
            for value in [7, 8] {
                there.add_after_sleep(&mut producer, value);
                there.publish(&mut producer);
            }
        });
        let mut consumer = shared.consumer();
        assert_eq!(shared.take_after_sleep(&mut consumer), 7);
        assert_eq!(shared.take_after_sleep(&mut consumer), 8);
        thread.join().expect("the producer ended well");
    });
}

/// Lent memory of one word, which the kernel copies for the consumer: without an order of its own.
#[test]
fn a_copy_of_memory_that_changed_after_its_withdrawal_does_not_count() {
    explore(3, || {
        let (lines, lent) = (lines(), AtomicU64::new(1));
        lines.withdrawn.load(Ordering::Relaxed);
        lent.load(Ordering::Relaxed);
        let shared = Arc::new((lines, lent));
        let there = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            withdraw(&there.0, RECORD);
            there.1.store(2, Ordering::Relaxed);
        });
        let copy = shared.1.load(Ordering::Relaxed);
        let void = is_withdrawn(&shared.0, 0);
        assert!(copy == 1 || void);
        assert!(
            !is_withdrawn(&shared.0, RECORD),
            "the next record is not void"
        );
        thread.join().expect("the producer ended well");
    });
}
