//! Several threads make random calls on random objects, dead or alive, for a bounded time. No call may panic, hang or leak, and each
//! returns a code that is defined for it.

mod null;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dat_core::cno::{Agent, Cno, CnoProxy};
use dat_core::ep::{Ep, EpParts};
use dat_core::error::{Error, Kind};
use dat_core::evd::Evd;
use dat_core::flags::{Close, CompletionFlags, EvdFlags, MemPriv, VaType};
use dat_core::ia::Ia;
use dat_core::iov::LmrTriplet;
use dat_core::lmr::{Lmr, Source};
use dat_core::pz::Pz;
use dat_core::rmr::{LmrRange, Rmr};
use dat_core::sp::Sp;
use null::{Events, Null, find_qp, open, regions};
use parking_lot::Mutex;

const TIME: Duration = Duration::from_millis(700);
const THREADS: u64 = 4;

/// A random generator (xorshift64*). A failing test prints the seed, and `DAT_TEST_SEED` sets it.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// All handles that were returned by a create; most remain after their object is freed.
struct Shelf<O: 'static>(Mutex<Vec<&'static O>>);

impl<O> Shelf<O> {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }
    fn put(&self, object: Result<&'static O, Error>) -> Result<(), Error> {
        let mut shelf = self.0.lock();
        if shelf.len() > 64 {
            shelf.remove(0);
        }
        object.map(|o| shelf.push(o))
    }
    fn any(&self, random: &mut Random) -> Option<&'static O> {
        let shelf = self.0.lock();
        let n = shelf.len() as u64;
        (n != 0).then(|| shelf[random.below(n) as usize])
    }
}

struct World {
    ia: &'static Ia<Null>,
    pz: Shelf<Pz<Null>>,
    lmr: Shelf<Lmr<Null>>,
    rmr: Shelf<Rmr<Null>>,
    cno: Shelf<Cno<Null>>,
    evd: Shelf<Evd<Null>>,
    ep: Shelf<Ep<Null>>,
    sp: Shelf<Sp<Null>>,
}

fn bits(random: &mut Random) -> MemPriv {
    MemPriv::from_bits_retain(random.below(0x80) as u32)
}

/// Makes one call, if an object for it exists.
#[allow(clippy::too_many_lines, reason = "one line a call")]
fn call(w: &World, r: &mut Random) -> Option<Result<(), Error>> {
    let short = Some(Duration::from_micros(r.below(200)));
    let none = CompletionFlags::empty();
    let streams = EvdFlags::from_bits_retain(r.below(0x200) as u32);
    Some(match r.below(36) {
        0 => w.pz.put(Pz::create(w.ia)),
        1 => w.pz.any(r)?.free(),
        2 | 3 => {
            let source = match r.below(3) {
                0 => Source::Lmr(w.lmr.any(r)?),
                1 => Source::Shared {
                    address: 0x1000,
                    cookie: [r.below(2) as u8; 40],
                },
                _ => Source::Virtual(r.below(1 << 20) as usize),
            };
            let (length, pz) = (r.below(4096), w.pz.any(r)?);
            let rights = bits(r);
            w.lmr
                .put(Lmr::create(w.ia, source, length, pz, rights, VaType::Va))
        }
        4 | 5 => w.lmr.any(r)?.free(),
        6 => w.lmr.any(r)?.info().map(|_| ()),
        7 => w.rmr.put(Rmr::create(w.pz.any(r)?)),
        8 => w.rmr.any(r)?.free(),
        9 | 10 => {
            let (lmr, rmr, ep) = (w.lmr.any(r)?, w.rmr.any(r)?, w.ep.any(r)?);
            let info = lmr.info().ok()?;
            let range = LmrRange {
                lmr_context: info.lmr_context,
                address: info.registered_address,
                length: r.below(info.registered_size + 2),
            };
            let named = (r.below(2) == 0).then_some(lmr);
            let rights = bits(r);
            rmr.bind(named, range, rights, VaType::Va, ep, 1, none)
                .map(|_| ())
        }
        11 => w.cno.put(Cno::create(w.ia, CnoProxy::None)),
        12 => w.cno.put(Cno::create(w.ia, CnoProxy::Fd)),
        13 => w.cno.any(r)?.free(),
        14 => w.cno.any(r)?.wait(short).map(|_| ()),
        15 => {
            let evd = w.evd.any(r)?;
            let agent = Agent {
                call: Box::new(move |_| {
                    let _ = evd.dequeue(&mut Events::default());
                }),
                instance_data: 0,
                function: 0,
            };
            w.cno.any(r)?.modify_agent(Some(agent))
        }
        16 | 17 => {
            let cno = if r.below(2) == 0 { w.cno.any(r) } else { None };
            w.evd
                .put(Evd::create(w.ia, r.below(40) as u32, cno, streams))
        }
        18 | 19 => w.evd.any(r)?.free(),
        20 | 21 => w.evd.any(r)?.post_se(1),
        22 => w.evd.any(r)?.dequeue(&mut Events::default()),
        23 | 24 => {
            let (evd, threshold) = (w.evd.any(r)?, r.below(4) as u32);
            evd.wait(short, threshold, &mut Events::default())
                .map(|_| ())
                .map_err(|e| e.error)
        }
        25 => w.evd.any(r)?.resize(r.below(50) as u32),
        26 => w.evd.any(r)?.modify_cno(w.cno.any(r)),
        27 => match r.below(4) {
            0 => w.evd.any(r)?.enable(),
            1 => w.evd.any(r)?.disable(),
            2 => w.evd.any(r)?.set_unwaitable(),
            _ => w.evd.any(r)?.clear_unwaitable(),
        },
        28 => {
            let parts = EpParts {
                pz: w.pz.any(r),
                recv_evd: w.evd.any(r),
                request_evd: w.evd.any(r),
                connect_evd: w.evd.any(r),
                srq: None,
            };
            w.ep.put(Ep::create(w.ia, parts, None))
        }
        29 => w.ep.any(r)?.free(),
        30 => {
            let to = std::net::Ipv4Addr::LOCALHOST.into();
            w.ep.any(r)?.connect(to, 1, short, &[], 0, 0)
        }
        31 => {
            find_qp(w.ep.any(r)?)?.establish();
            Ok(())
        }
        32 => w.ep.any(r)?.post_send(&[], 1, none),
        33 => {
            let ep = w.ep.any(r)?;
            find_qp(ep)?.finish_some();
            Ok(())
        }
        34 => match r.below(3) {
            0 => w.ep.any(r)?.disconnect(Close::Abrupt),
            1 => w.ep.any(r)?.reset(),
            _ => w.ep.any(r)?.post_recv(&[], 2, none),
        },
        _ => match r.below(3) {
            0 => {
                let (qual, provider) = (r.below(8), r.below(2) == 0);
                w.sp.put(Sp::psp_create(w.ia, Some(qual), w.evd.any(r)?, provider))
            }
            1 => w.sp.any(r)?.free(),
            _ => {
                let segment = LmrTriplet {
                    virtual_address: r.below(1 << 20),
                    segment_length: 8,
                    lmr_context: r.below(100) as u32,
                };
                Lmr::sync_read(w.ia, [Ok(segment)])
            }
        },
    })
}

/// Returns true unless the error is an internal one.
fn possible(error: Error) -> bool {
    error.kind() != Some(Kind::InternalError) && error.kind().is_some()
}

#[test]
fn any_call_on_any_handle_is_answered() {
    let seed = std::env::var("DAT_TEST_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(4711);
    let calls = AtomicU64::new(0);
    for round in 0..3 {
        let world = World {
            ia: open(),
            pz: Shelf::new(),
            lmr: Shelf::new(),
            rmr: Shelf::new(),
            cno: Shelf::new(),
            evd: Shelf::new(),
            ep: Shelf::new(),
            sp: Shelf::new(),
        };
        let end = Instant::now() + TIME;
        thread::scope(|scope| {
            for n in 0..THREADS {
                let (world, calls) = (&world, &calls);
                scope.spawn(move || {
                    let mut random = Random(seed + round * THREADS + n + 1);
                    // The last round closes the IA while the other threads make calls.
                    let closer = round == 2 && n == 0;
                    let end = if closer { end - TIME / 2 } else { end };
                    while Instant::now() < end {
                        if let Some(Err(error)) = call(world, &mut random) {
                            assert!(possible(error), "seed {seed}: {error}");
                        }
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                    if closer {
                        world.ia.close(Close::Abrupt).unwrap();
                    }
                });
            }
        });
        if round != 2 {
            world.ia.close(Close::Abrupt).unwrap();
        }
        assert_eq!(regions(), 0, "seed {seed}: a region is left registered");
        assert!(world.ia.async_evd().is_none());
    }
    let calls = calls.into_inner();
    assert!(calls > 1000, "{calls} calls only");
}
