//! Random calls of every function from several threads on one set of handles.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use dat_abi::types::event_number;
use dat_core::error::{Error, Kind};
use fastrand::Rng;

use super::WORDS;
use super::functions::{Arg, FUNCTIONS, Function, Thing};
use super::memory::{ArgumentMemory, LARGE, followed, impostor, large};
use super::valid::{places, triplet};
use super::world::{CR_WORD, MEMORY, Target, World};
use crate::api::{Api, Table};
use crate::verdict::{Check, broken};

/// Duration, seed and threads of the random calls.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seed: it determines the calls, unless threads interfere.
    pub seed: u64,
    /// Number of calling threads.
    pub threads: usize,
    /// Duration; up to 12 s where a busy machine makes fewer than 2000 calls in that time.
    pub span: Duration,
}

/// Number of calls after which every function that can succeed probably has.
const LEAST: usize = 2000;
/// Maximum duration on a busy machine.
const LONGEST: Duration = Duration::from_secs(12);

impl Plan {
    /// Returns a plan of one second with seed 1, unless `DAT_FUZZ_SECONDS` and `DAT_FUZZ_SEED` are set.
    #[must_use]
    pub fn of_environment(threads: usize) -> Self {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        Self {
            seed: number("DAT_FUZZ_SEED").unwrap_or(1),
            threads,
            span: Duration::from_secs(number("DAT_FUZZ_SECONDS").unwrap_or(1)),
        }
    }
}

/// Results of the calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Number of calls.
    pub calls: usize,
    /// Number of calls that succeeded.
    pub succeeded: usize,
    /// Number of functions that succeeded at least once.
    pub functions: usize,
}

/// Time limit of a call on a busy machine. All requested timeouts are shorter.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Number of the newest handles that calls use.
const RECENT: usize = 150;
/// Maximum number of open IAs that calls opened.
const OPEN_IAS: usize = 4;

/// Handles of any age, shared by all threads.
#[derive(Debug, Default)]
struct Pool {
    handles: VecDeque<(Thing, usize)>,
    /// Handles of other providers.
    foreign: Vec<usize>,
    contexts: Vec<u32>,
    addresses: Vec<usize>,
    /// Registered memory, never freed.
    memory: Vec<usize>,
    /// IAs that calls opened.
    opened: VecDeque<usize>,
}

/// The current call of a thread, for the watchdog.
#[derive(Debug, Default)]
struct Watch {
    /// Begin of the call in milliseconds; 0 between calls.
    since: AtomicUsize,
    function: AtomicUsize,
}

struct Shared {
    target: Target,
    pool: Mutex<Pool>,
    watches: Vec<Watch>,
    begun: Instant,
    over: AtomicBool,
    /// Number of successes of each function.
    succeeded: Vec<AtomicUsize>,
    calls: AtomicUsize,
}

/// Makes random calls. Each must return in time with a code that its manual page names, and at the end a new IA must
/// work.
///
/// # Errors
/// The first call that did not, with its seed.
pub fn fuzz(target: &Target, foreign: &[usize], plan: Plan) -> Check<Tally> {
    let shared = Arc::new(Shared {
        target: target.clone(),
        pool: Mutex::new(Pool {
            foreign: foreign.to_vec(),
            ..Pool::default()
        }),
        watches: (0..plan.threads).map(|_| Watch::default()).collect(),
        begun: Instant::now(),
        over: AtomicBool::new(false),
        succeeded: FUNCTIONS.iter().map(|_| AtomicUsize::new(0)).collect(),
        calls: AtomicUsize::new(0),
    });
    let threads: Vec<_> = (0..plan.threads)
        .map(|number| {
            let shared = Arc::clone(&shared);
            let seed = plan.seed.wrapping_add(number as u64);
            spawn(move || Caller::new(&shared, number, seed).run())
        })
        .collect();
    let ended = attend(&shared, plan.span, threads);
    ended.or_else(|why| broken(format!("seed {}: {why}", plan.seed)))?;
    let opened = std::mem::take(&mut lock(&shared.pool).opened);
    for ia in opened {
        // SAFETY: it was a handle, and those of ours stay readable; the call has no pointers.
        unsafe { target.opener.of_handle(ia).call("ia_close", &[ia, 0]) };
    }
    if followed() != 0 {
        return broken(format!(
            "seed {}: the provider called a function through an object that is no handle",
            plan.seed
        ));
    }
    drop(World::open(target)?);
    let counts = || shared.succeeded.iter().map(|n| n.load(Ordering::Relaxed));
    Ok(Tally {
        calls: shared.calls.load(Ordering::Relaxed),
        succeeded: counts().sum(),
        functions: counts().filter(|n| *n > 0).count(),
    })
}

fn lock(pool: &Mutex<Pool>) -> std::sync::MutexGuard<'_, Pool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the threads call for the planned duration. Reports a call that hangs, since its own thread cannot.
fn attend(
    shared: &Arc<Shared>,
    span: Duration,
    threads: Vec<JoinHandle<Result<(), String>>>,
) -> Result<(), String> {
    while !threads.iter().all(JoinHandle::is_finished) {
        sleep(Duration::from_millis(5));
        let stopped = threads.iter().any(JoinHandle::is_finished);
        let elapsed = shared.begun.elapsed();
        let enough = shared.calls.load(Ordering::Relaxed) >= LEAST || elapsed >= LONGEST;
        if elapsed >= span && enough || stopped {
            shared.over.store(true, Ordering::Release);
        }
        let now = shared.begun.elapsed().as_millis() as usize;
        for watch in &shared.watches {
            let since = watch.since.load(Ordering::Acquire);
            if since != 0 && now.saturating_sub(since) > TIMEOUT.as_millis() as usize {
                let function = FUNCTIONS[watch.function.load(Ordering::Relaxed)].name;
                return Err(format!(
                    "dat_{function} has not returned within {TIMEOUT:?}"
                ));
            }
        }
    }
    threads
        .into_iter()
        .try_for_each(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
}

struct Caller<'a> {
    shared: &'a Shared,
    number: usize,
    random: Rng,
    memory_of_arguments: ArgumentMemory,
    worlds: VecDeque<World>,
    table: Table,
}

impl<'a> Caller<'a> {
    fn new(shared: &'a Shared, number: usize, seed: u64) -> Self {
        Self {
            shared,
            number,
            random: Rng::with_seed(seed),
            memory_of_arguments: ArgumentMemory::new(),
            worlds: VecDeque::new(),
            table: shared.target.opener,
        }
    }

    fn version(&self) -> Api {
        self.shared.target.opener.api()
    }

    fn run(mut self) -> Result<(), String> {
        let functions: Vec<usize> = (0..FUNCTIONS.len())
            .filter(|f| FUNCTIONS[*f].is_of(self.version()))
            .collect();
        while !self.shared.over.load(Ordering::Acquire) {
            if self.worlds.is_empty() || self.random.u32(..400) == 0 {
                self.open()?;
            }
            if self.worlds.is_empty() {
                continue;
            }
            let function = functions[self.random.usize(..functions.len())];
            self.step(function)?;
        }
        Ok(())
    }

    /// Opens new handles for all threads and closes the oldest world of this thread.
    fn open(&mut self) -> Result<(), String> {
        let world = match World::open(&self.shared.target) {
            Ok(world) => world,
            // A random call of another thread used its handles or its qualifier.
            Err(_) if self.shared.watches.len() > 1 => return Ok(()),
            Err(why) => return Err(format!("a new IA does not work: {why:?}")),
        };
        self.table = world.table;
        let mut pool = lock(&self.shared.pool);
        pool.handles.extend(world.all());
        pool.handles.extend(world.freed());
        pool.contexts.extend([world.lmr_context, world.rmr_context]);
        pool.addresses.push(world.address);
        pool.memory.push(world.memory.as_ptr() as usize);
        drop(pool);
        self.worlds.push_back(world);
        if self.worlds.len() > 2 {
            self.worlds.pop_front();
        }
        Ok(())
    }

    fn step(&mut self, number: usize) -> Result<(), String> {
        let function = &FUNCTIONS[number];
        let words = self.words(function);
        // dat_ia_close is made rarely: without IAs all calls fail.
        if function.name == "ia_close" && self.random.u32(..40) != 0 {
            return Ok(());
        }
        let opens = function.name == "ia_open";
        let table = if opens {
            self.shared.target.opener
        } else {
            self.table
        };
        let watch = &self.shared.watches[self.number];
        watch.function.store(number, Ordering::Relaxed);
        let now = self.shared.begun.elapsed().as_millis() as usize;
        watch.since.store(now.max(1), Ordering::Release);
        // SAFETY: `words` made pointers that are NULL, or good for the function, at any alignment.
        let code = unsafe { table.call(function.name, &words) };
        watch.since.store(0, Ordering::Release);
        self.shared.calls.fetch_add(1, Ordering::Relaxed);
        let Some(code) = code else {
            return Err(format!("the table has no {}", function.name));
        };
        match Error::from_code(code) {
            None => {
                self.shared.succeeded[number].fetch_add(1, Ordering::Relaxed);
                self.learn(function);
                Ok(())
            }
            Some(error) => match error.kind() {
                Some(kind) if kind != Kind::InternalError && function.may_answer(kind) => Ok(()),
                _ => Err(format!(
                    "dat_{} of {words:x?} returned {error} ({code:#x}), which its page does not name",
                    function.name
                )),
            },
        }
    }

    /// Records the handles that a call created.
    fn learn(&mut self, function: &Function) {
        let mut pool = lock(&self.shared.pool);
        for (arg, place) in function.args.iter().zip(places(function)) {
            if let Arg::Made(thing) = arg {
                let handle = self.memory_of_arguments.room(place)[0] as usize;
                pool.handles.push_back((*thing, handle));
                if *thing == Thing::Ia {
                    pool.opened.push_back(handle);
                }
            }
        }
        if matches!(function.name, "evd_dequeue" | "evd_wait") {
            let place = if function.name == "evd_wait" { 3 } else { 1 };
            let event = self.memory_of_arguments.room(place);
            if event[0] as u32 == event_number::CONNECTION_REQUEST {
                let cr = event[CR_WORD] as usize;
                pool.handles.push_back((Thing::Cr, cr));
            }
        }
        while pool.handles.len() > 4 * RECENT {
            pool.handles.pop_front();
        }
        let surplus = (pool.opened.len() > OPEN_IAS).then(|| pool.opened.pop_front());
        drop(pool);
        if let Some(Some(ia)) = surplus {
            // SAFETY: no pointers.
            unsafe { self.table.call("ia_close", &[ia, 0]) };
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.usize(..from.len())]
    }

    /// Returns a handle: mostly of `thing`, and a recent one.
    fn handle(&mut self, thing: Option<Thing>) -> usize {
        let odd = [
            0,
            1,
            3,
            8,
            4096,
            1 << 63,
            !0,
            !7,
            impostor(),
            impostor() + 8,
        ];
        let pool = lock(&self.shared.pool);
        let recent = || pool.handles.iter().rev().take(RECENT);
        let fitting: Vec<usize> = recent()
            .filter(|(kind, _)| thing.is_none_or(|thing| thing == *kind))
            .map(|(_, handle)| *handle)
            .collect();
        let any: Vec<usize> = recent().map(|(_, handle)| *handle).collect();
        let foreign = pool.foreign.clone();
        drop(pool);
        match self.random.u32(..32) {
            0 => self.pick(&odd),
            1 if !foreign.is_empty() => self.pick(&foreign),
            2 => self.pick(&any),
            3 => self.pick(&any).wrapping_add(self.pick(&[1, 4, 8, 64, 256])),
            _ if fitting.is_empty() => 0,
            _ => self.pick(&fitting),
        }
    }

    /// Returns a 32-bit count: small, or an edge value.
    fn count(&mut self) -> usize {
        const EDGES: [i32; 12] = [
            -1,
            i32::MIN,
            i32::MAX,
            0,
            1,
            2,
            5,
            17,
            64,
            100,
            1000,
            70_000,
        ];
        let count = match self.random.u32(..3) {
            0 => self.pick(&EDGES),
            _ => self.random.i32(1..12),
        };
        count as u32 as usize
    }

    /// Returns a part of some world's memory, or an invalid range.
    fn triplet(&mut self) -> Vec<u64> {
        let pool = lock(&self.shared.pool);
        let (memory, contexts) = (pool.memory.clone(), pool.contexts.clone());
        drop(pool);
        let base = self.pick(&memory) as u64;
        let offset = self.pick(&[
            0,
            8,
            64,
            2048,
            MEMORY as u64 - 8,
            MEMORY as u64,
            !0,
            1 << 40,
        ]);
        let length = self.pick(&[0, 1, 8, 64, 2048, 4096, 4097, u32::MAX.into(), !0, 1 << 32]);
        let recent = contexts.len().saturating_sub(6);
        let context = match self.random.u32(..6) {
            0 => self.random.u32(..),
            _ => self.pick(&contexts[recent..]),
        };
        triplet(self.version(), base.wrapping_add(offset), length, context)
    }

    /// Returns NULL, a misaligned pointer, or `good`.
    fn pointer(&mut self, good: usize, misaligned: bool) -> usize {
        match self.random.u32(..40) {
            0 => 0,
            1 if misaligned => good + 1,
            _ => good,
        }
    }

    fn words(&mut self, function: &Function) -> [usize; WORDS] {
        let mut words = [0; WORDS];
        let mut before = 0;
        for (arg, place) in function.args.iter().zip(places(function)) {
            words[place] = self.word(*arg, place, before);
            before = words[place];
            if matches!(arg, Arg::Region) {
                words[place + 1] = self.shm_name(place + 1);
            }
            if matches!(arg, Arg::Agent) && self.random.bool() {
                words[place + 1] = agent as extern "C" fn(usize, usize) as usize;
            }
        }
        self.lengths_that_fit(function, &mut words);
        words
    }

    /// Returns a `DAT_LMR_COOKIE`: one of few names.
    fn shm_name(&mut self, place: usize) -> usize {
        let name = [self.random.u64(..3); 5];
        let good = self.memory_of_arguments.words(place, &name);
        self.pointer(good, false)
    }

    /// Adjusts the region of dat_lmr_create to memory that exists, or that cannot: a provider may trust the arguments.
    fn lengths_that_fit(&mut self, function: &Function, words: &mut [usize; WORDS]) {
        if function.name != "lmr_create" {
            return;
        }
        if words[1] == 1 {
            words[2] = self.handle(Some(Thing::Lmr));
        }
        let wraps = words[2].wrapping_neg();
        words[4] = match self.random.u32(..8) {
            0 => 0,
            1 if words[2] != 0 => self.pick(&[wraps.wrapping_add(1), wraps.wrapping_add(4096), !0]),
            _ => self.pick(&[1, 64, MEMORY / 2, MEMORY]),
        };
    }

    /// Returns one argument; `before` is the one before it.
    fn word(&mut self, arg: Arg, place: usize, before: usize) -> usize {
        match arg {
            Arg::Handle(thing, _) | Arg::Optional(thing, _) => self.handle(Some(thing)),
            Arg::Any => self.handle(None),
            Arg::Made(_) | Arg::Out | Arg::Maybe => {
                let good = self.memory_of_arguments.out(place);
                self.pointer(good, false)
            }
            Arg::Count(_) | Arg::Positive | Arg::Mark => self.count(),
            Arg::Segments => match self.count() {
                count if count as i32 > 64 => (LARGE / 24).min(count),
                count => count,
            },
            Arg::Word(good, wrong) => match self.random.u32(..4) {
                0 => self.pick(&[wrong, u32::MAX, 1, 2, 3]) as usize,
                1 => self.random.usize(..0x200),
                _ => good as usize,
            },
            Arg::Free | Arg::Mask | Arg::EpMask => match self.random.u32(..4) {
                0 => self.random.usize(..),
                1 => 1 << self.random.u32(..40),
                _ => 0,
            },
            Arg::Timeout => self.pick(&[0, 10, 1000]),
            Arg::Attempt => self.pick(&[0, 1, 1000, 50_000]),
            Arg::Qual => self.qual(),
            Arg::Iov => {
                let good = if before as i32 > 5 {
                    large()
                } else {
                    let all: Vec<u64> = (0..5).flat_map(|_| self.triplet()).collect();
                    self.memory_of_arguments.words(place, &all)
                };
                self.pointer(good, true)
            }
            Arg::Synced | Arg::Local | Arg::Remote => {
                let one = self.triplet();
                let good = self.memory_of_arguments.words(place, &one);
                self.pointer(good, true)
            }
            Arg::SyncedCount => self.pick(&[0, 1, 1, 1, 1 << 31, !0]),
            Arg::DataSize => {
                let size = self.pick(&[0, 4, 24, 56, 57, 196, 197, 256, 70_000, LARGE as i32, -1]);
                size as u32 as usize
            }
            Arg::Data => self.pointer(large(), false),
            Arg::Address => {
                let addresses = lock(&self.shared.pool).addresses.clone();
                match self.random.u32(..12) {
                    0 => 0,
                    // A socket address of random family and bytes.
                    1 => {
                        let some: [u64; 4] = std::array::from_fn(|_| self.random.u64(..));
                        self.memory_of_arguments.words(place, &some)
                    }
                    _ => self.pick(&addresses),
                }
            }
            Arg::Comm => {
                let comm: [u32; 3] = std::array::from_fn(|_| self.pick(&[2, 10, 1, 0, 6, 17]));
                let family = self.pick(&[2, 10]);
                let comm = self.pick(&[comm, [family, 1, 6], [family, 1, 0]]);
                let good = self.memory_of_arguments.halves(place, &comm);
                self.pointer(good, true)
            }
            Arg::Event => {
                let number = self.pick(&[event_number::SOFTWARE, event_number::SOFTWARE, 1, 0]);
                let good = self
                    .memory_of_arguments
                    .words(place, &[number.into(), 0, 0x1234]);
                self.pointer(good, true)
            }
            Arg::EpAttr | Arg::EpParam => {
                let halves: Vec<u32> = (0..64).map(|_| self.count() as u32).collect();
                let good = self.memory_of_arguments.halves(place, &halves);
                let null = matches!(arg, Arg::EpAttr) && self.random.bool();
                if null { 0 } else { self.pointer(good, true) }
            }
            Arg::SrqAttr => {
                let halves: Vec<u32> = (0..3).map(|_| self.count() as u32).collect();
                let good = self.memory_of_arguments.halves(place, &halves);
                self.pointer(good, true)
            }
            Arg::MemType => self.pick(&[0, 0, 0, 1, 2, 3]),
            Arg::Region => {
                let memory = lock(&self.shared.pool).memory.clone();
                let address = self.pick(&memory);
                self.pointer(address, false)
            }
            // Set when all words are known; no agent.
            Arg::Length | Arg::Agent => 0,
            Arg::Name | Arg::Other => {
                let good = self.shared.target.name.as_ptr() as usize;
                let long = self.memory_of_arguments.room(place);
                long.fill(0x6161_6161_6161_6161);
                long[long.len() - 1] = 0;
                let long = long.as_ptr() as usize;
                self.pick(&[good, good, good, long, 0])
            }
            Arg::AsyncEvd => {
                let evd = self.handle(Some(Thing::Evd));
                let given = self.pick(&[0, 0, 1, evd]) as u64;
                let good = self.memory_of_arguments.words(place, &[given]);
                self.pointer(good, true)
            }
        }
    }

    fn qual(&mut self) -> usize {
        match (self.worlds.back(), self.random.u32(..3)) {
            (Some(world), 0) => world.qual as usize,
            _ => self.random.usize(7000..7004),
        }
    }
}

/// A wait-proxy agent of the consumer.
extern "C" fn agent(_instance: usize, _evd: usize) {}
