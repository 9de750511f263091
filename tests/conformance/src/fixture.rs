//! An open IA with one object of each kind, and two of them connected.

use std::sync::atomic::{AtomicU8, Ordering};

use dat_abi::v2_0::types::{DatIaAttr, DatLmrTriplet, DatRmrTriplet};
use dat_core::ep::EpState;
use dat_core::error::Kind;
use dat_core::event::ConnectionEvent;
use dat_core::flags::EvdFlags;

use crate::calls;
use crate::dat::{Dat, Post, Region, Source};
use crate::event::{SUCCESS, Seen};
use crate::names::{EventNumber, Status};
use crate::verdict::{Check, Verdict, broken, ok, refused, same};

/// Timeout for an expected event, in microseconds.
pub(crate) const TIMEOUT: u32 = 10_000_000;
/// Time in which no event should arrive, in microseconds.
pub(crate) const MOMENT: u32 = 20_000;
/// Memory that a process may be unable to lock.
const LARGE: usize = 1 << 18;
pub(crate) const FOREVER: u32 = u32::MAX;
pub(crate) const ABRUPT: u32 = 0;
pub(crate) const GRACEFUL: u32 = 1;
/// `DAT_PSP_CONSUMER_FLAG`.
pub(crate) const CONSUMER: u32 = 0;
/// `DAT_PSP_PROVIDER_FLAG`.
pub(crate) const PROVIDER: u32 = 1;

/// Returns the value of a successful call, or its code as a failed check.
pub(crate) fn expect_ok<T>(result: Result<T, u32>, call: &str) -> Check<T> {
    match result {
        Ok(value) => Ok(value),
        Err(code) => Err(ok(code, call).expect_err("an error code is no success")),
    }
}

/// An open IA; dropping it closes it abruptly with all its objects.
pub(crate) struct Side<'a> {
    pub(crate) dat: &'a Dat,
    pub(crate) ia: usize,
    pub(crate) async_evd: usize,
    pub(crate) attr: DatIaAttr,
    pub(crate) pz: usize,
    pub(crate) recv: usize,
    pub(crate) request: usize,
    pub(crate) conn: usize,
    pub(crate) cr: usize,
}

impl Drop for Side<'_> {
    fn drop(&mut self) {
        // Statements about closing have already closed it.
        let _ = self.dat.ia_close(self.ia, ABRUPT);
    }
}

impl<'a> Side<'a> {
    pub(crate) fn open(dat: &'a Dat) -> Check<Self> {
        let (ia, async_evd) = expect_ok(dat.ia_open(), "dat_ia_open")?;
        let (attr, _) = expect_ok(dat.ia_query(ia), "dat_ia_query")?;
        let mut side = Self {
            dat,
            ia,
            async_evd,
            attr,
            pz: 0,
            recv: 0,
            request: 0,
            conn: 0,
            cr: 0,
        };
        side.pz = expect_ok(dat.pz_create(ia), "dat_pz_create")?;
        side.recv = side.evd(EvdFlags::DTO)?;
        side.request = side.evd(EvdFlags::DTO | EvdFlags::RMR_BIND)?;
        side.conn = side.evd(EvdFlags::CONNECTION)?;
        side.cr = side.evd(EvdFlags::CR)?;
        Ok(side)
    }

    pub(crate) fn evd(&self, flags: EvdFlags) -> Check<usize> {
        let evd = self.dat.evd_create(self.ia, 64, 0, flags.bits());
        expect_ok(evd, "dat_evd_create")
    }

    pub(crate) fn ep(&self) -> Check<usize> {
        let evds = [self.recv, self.request, self.conn];
        expect_ok(self.dat.ep_create(self.ia, self.pz, evds), "dat_ep_create")
    }

    pub(crate) fn memory(&self, length: usize, privileges: u32) -> Check<Memory> {
        self.memory_in(self.pz, length, privileges)
    }

    /// Registers new memory in the protection zone `pz`.
    pub(crate) fn memory_in(&self, pz: usize, length: usize, privileges: u32) -> Check<Memory> {
        // Leaked: a peer may still write when the statement has ended.
        let bytes: &'static [AtomicU8] = (0..length)
            .map(|_| AtomicU8::new(0))
            .collect::<Vec<_>>()
            .leak();
        let region = self
            .dat
            .lmr_create(self.ia, Source::Virtual(bytes), pz, privileges);
        if let Err(code) = region
            && length >= LARGE
            && refused(code, Kind::InsufficientResources, "").is_ok()
        {
            return Err(Verdict::Lacks(format!(
                "dat_lmr_create of {length} bytes returned DAT_INSUFFICIENT_RESOURCES: the process may lock less memory (ulimit -l)"
            )));
        }
        let region = expect_ok(region, "dat_lmr_create")?;
        Ok(Memory { bytes, region })
    }

    /// Waits for the next event of `evd`.
    pub(crate) fn wait(&self, evd: usize) -> Check<Seen> {
        self.wait_for(evd, "an event")
    }

    /// Waits for the next event of `evd`, which should be `what`.
    pub(crate) fn wait_for(&self, evd: usize, what: &str) -> Check<Seen> {
        let what = format!("{what} on {}", self.name_of(evd));
        let awaits = calls::awaits(what.clone());
        let waited = self.dat.evd_wait(evd, TIMEOUT, 1);
        drop(awaits);
        match waited {
            Ok((seen, _)) => Ok(seen),
            Err(code) if refused(code, Kind::TimeoutExpired, "").is_ok() => broken(format!(
                "waited 10 s for {what}; {}",
                self.arrived_elsewhere(evd)
            )),
            Err(code) => expect_ok(Err(code), &format!("dat_evd_wait for {what}")),
        }
    }

    /// Returns the EVDs of this side, with their names.
    fn evds(&self) -> [(usize, &'static str); 5] {
        [
            (self.recv, "the receive EVD"),
            (self.request, "the request EVD"),
            (self.conn, "the connection EVD"),
            (self.cr, "the connection request EVD"),
            (self.async_evd, "the asynchronous EVD"),
        ]
    }

    fn name_of(&self, evd: usize) -> &'static str {
        let named = self.evds().into_iter().find(|(one, _)| *one == evd);
        named.map_or("an EVD", |(_, name)| name)
    }

    /// Says which events are on the other EVDs of this side, and takes them: the statement has failed.
    fn arrived_elsewhere(&self, awaited: usize) -> String {
        let others = self.evds().into_iter().filter(|(evd, _)| *evd != awaited);
        let events: Vec<String> = others
            .filter_map(|(evd, name)| {
                let seen = self.dat.evd_dequeue(evd).ok()?;
                Some(format!("{seen:?} on {name}"))
            })
            .collect();
        if events.is_empty() {
            return "nothing arrived, there or on another EVD of that IA".into();
        }
        format!("instead arrived {}", events.join(", "))
    }

    /// Checks that the next event of `evd` is a completion with this cookie and status.
    pub(crate) fn completes(&self, evd: usize, cookie: u64, status: Status) -> Check {
        let what = format!("the completion with cookie {cookie} and {status:?}");
        match self.wait_for(evd, &what)?.completion() {
            Some(seen) => same(&seen, &(cookie, status), "completion (cookie, status)"),
            None => broken("no completion"),
        }
    }

    /// Waits for the completion with this cookie, of what `name` says; returns its status.
    pub(crate) fn result(&self, evd: usize, cookie: u64, name: &str) -> Check<Status> {
        match self.wait_for(evd, &format!("the completion of {name}"))? {
            seen if seen.completion().is_some_and(|(c, _)| c == cookie) => {
                Ok(seen.completion().unwrap_or((0, SUCCESS)).1)
            }
            other => broken(format!(
                "dat_evd_wait returned {other:?}; expected the completion of {name}, with cookie {cookie}"
            )),
        }
    }

    /// Returns the largest number of bytes, at most `limit`, of one message or of one RDMA request.
    pub(crate) fn longest(&self, limit: usize, message: bool) -> Check<usize> {
        let (most, name) = if message {
            (self.attr.max_message_size, "max_message_size")
        } else {
            (self.attr.max_rdma_size, "max_rdma_size")
        };
        match limit.min(most as usize) {
            0 => broken(format!("dat_ia_query returned 0 as {name}")),
            length => Ok(length),
        }
    }

    /// Checks that the next event of the connect EVD is this one.
    pub(crate) fn connection(&self, ep: usize, number: ConnectionEvent) -> Check {
        let expected = Seen::Connection {
            number: number.into(),
            ep,
        };
        let what = format!("{:?}", EventNumber::from(number));
        let seen = self.wait_for(self.conn, &what)?;
        same(&seen, &expected, "connection event")
    }

    /// Checks that the connection of `ep` ends by a fault. Each side may see it as broken or as the peer's disconnect:
    /// the two race.
    pub(crate) fn ends(&self, ep: usize) -> Check {
        match self.wait_for(self.conn, "the end of the connection")? {
            Seen::Connection { number, ep: seen }
                if seen == ep
                    && (number == EventNumber::from(ConnectionEvent::Broken)
                        || number == EventNumber::from(ConnectionEvent::Disconnected)) =>
            {
                self.state(ep, EpState::Disconnected)
            }
            other => broken(format!(
                "dat_evd_wait returned {other:?}; expected the end of the connection"
            )),
        }
    }

    pub(crate) fn quiet(&self, evd: usize) -> Check {
        match self.dat.evd_wait(evd, MOMENT, 1) {
            Ok((seen, _)) => broken(format!("dat_evd_wait returned {seen:?}; expected no event")),
            Err(_) => Ok(()),
        }
    }

    pub(crate) fn state(&self, ep: usize, expected: EpState) -> Check {
        let (state, ..) = expect_ok(self.dat.ep_get_status(ep), "dat_ep_get_status")?;
        same(
            &EpState::from_number(state),
            &Some(expected),
            "endpoint state",
        )
    }

    /// Waits for the next request at a service point of this side.
    pub(crate) fn request(&self) -> Check<usize> {
        match self.wait_for(self.cr, "DAT_CONNECTION_REQUEST_EVENT")? {
            Seen::Request { cr, .. } => Ok(cr),
            other => broken(format!(
                "dat_evd_wait returned {other:?}; expected a connection request"
            )),
        }
    }

    pub(crate) fn listen(&self) -> Check<(usize, u64)> {
        let psp = self.dat.psp_create_any(self.ia, self.cr, CONSUMER);
        expect_ok(psp, "dat_psp_create_any")
    }

    /// Returns a qualifier without a listener: one that was created and freed.
    pub(crate) fn unused(&self) -> Check<u64> {
        let (psp, qual) = self.listen()?;
        ok(self.dat.psp_free(psp), "dat_psp_free")?;
        Ok(qual)
    }

    /// Returns private data one byte longer than the provider's maximum.
    pub(crate) fn too_much_data(&self) -> Check<Vec<u8>> {
        let (_, provider) = expect_ok(self.dat.ia_query(self.ia), "dat_ia_query")?;
        match usize::try_from(provider.max_private_data_size) {
            Ok(size) if size > 0 => Ok(vec![1; size + 1]),
            _ => broken("dat_ia_query returned 0 as maximum of private data"),
        }
    }

    /// Waits for the next connection event of `evd`, with its private data.
    pub(crate) fn wait_with_data(&self, evd: usize) -> Check<(Seen, Vec<u8>)> {
        let _awaits = calls::awaits(format!("an event on {}", self.name_of(evd)));
        expect_ok(self.dat.evd_wait_data(evd, TIMEOUT), "dat_evd_wait (10 s)")
    }

    pub(crate) fn post(&self, ep: usize, what: Post, iov: &[DatLmrTriplet], cookie: u64) -> Check {
        let code = self.dat.post(ep, what, iov, cookie, 0);
        ok(code, "dat_ep_post")
    }
}

/// Registered memory.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    bytes: &'static [AtomicU8],
    pub(crate) region: Region,
}

impl Memory {
    pub(crate) fn bytes(&self) -> &'static [AtomicU8] {
        self.bytes
    }

    /// Returns the first eight bytes.
    pub(crate) fn word(&self) -> u64 {
        let byte = |at: usize| self.bytes[at].load(Ordering::Relaxed);
        u64::from_ne_bytes(std::array::from_fn(byte))
    }

    pub(crate) fn set_word(&self, word: u64) {
        for (to, byte) in self.bytes.iter().zip(word.to_ne_bytes()) {
            to.store(byte, Ordering::Relaxed);
        }
    }

    fn address(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    /// Returns a local segment of the whole memory.
    pub(crate) fn local(&self) -> DatLmrTriplet {
        DatLmrTriplet {
            virtual_address: self.address(),
            segment_length: self.bytes.len() as u32,
            lmr_context: self.region.lmr_context,
        }
    }

    /// Returns a remote segment of the whole memory with this key.
    pub(crate) fn under(&self, rmr_context: u32) -> DatRmrTriplet {
        DatRmrTriplet {
            virtual_address: self.address(),
            segment_length: self.bytes.len() as u32,
            rmr_context,
        }
    }

    pub(crate) fn remote(&self) -> DatRmrTriplet {
        self.under(self.region.rmr_context)
    }

    pub(crate) fn fill(&self, byte: u8) {
        for b in self.bytes {
            b.store(byte, Ordering::Relaxed);
        }
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.bytes[at].load(Ordering::Relaxed)
    }

    /// Returns byte `at` of the pattern `seed`. Neither a shift nor an exchange of two blocks of the same length keeps it.
    fn of_pattern(seed: u64, at: usize) -> u8 {
        let at = at as u64;
        (at ^ at >> 8 ^ (at >> 16).wrapping_mul(31) ^ seed.wrapping_mul(97)) as u8
    }

    /// Fills the memory with the pattern `seed`.
    pub(crate) fn pattern(&self, seed: u64) {
        for (at, byte) in self.bytes.iter().enumerate() {
            byte.store(Self::of_pattern(seed, at), Ordering::Relaxed);
        }
    }

    /// Returns the first byte that is not of the pattern `seed`.
    pub(crate) fn first_difference(&self, seed: u64) -> Option<usize> {
        (0..self.bytes.len()).find(|at| self.byte(*at) != Self::of_pattern(seed, *at))
    }

    pub(crate) fn is_all(&self, byte: u8) -> bool {
        self.is_all_from(0, byte)
    }

    pub(crate) fn is_all_from(&self, at: usize, byte: u8) -> bool {
        self.bytes[at..]
            .iter()
            .all(|b| b.load(Ordering::Relaxed) == byte)
    }
}

/// Two sides with one endpoint each.
pub(crate) struct Pair<'a> {
    pub(crate) a: Side<'a>,
    pub(crate) b: Side<'a>,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl<'a> Pair<'a> {
    pub(crate) fn connected(dat: &'a Dat) -> Check<Self> {
        let pair = Self::apart(dat)?;
        pair.join(pair.from, pair.to)?;
        Ok(pair)
    }

    /// Connects new endpoints of the sides of `ended`.
    pub(crate) fn connected_again(ended: Self) -> Check<Self> {
        let (from, to) = (ended.a.ep()?, ended.b.ep()?);
        let pair = Self { from, to, ..ended };
        pair.join(from, to)?;
        Ok(pair)
    }

    /// Opens both sides, not yet connected.
    pub(crate) fn apart(dat: &'a Dat) -> Check<Self> {
        let (a, b) = (Side::open(dat)?, Side::open(dat)?);
        let (from, to) = (a.ep()?, b.ep()?);
        Ok(Self { a, b, from, to })
    }

    /// Connects endpoint `from` of `a` to `to` of `b`, and dequeues the events.
    pub(crate) fn join(&self, from: usize, to: usize) -> Check {
        let cr = self.asked(from, FOREVER)?;
        ok(self.b.dat.cr_accept(cr, to, b""), "dat_cr_accept")?;
        self.a.connection(from, ConnectionEvent::Established)?;
        self.b.connection(to, ConnectionEvent::Established)
    }

    /// Sends a request of endpoint `from` and returns it at side `b`.
    pub(crate) fn asked(&self, from: usize, microseconds: u32) -> Check<usize> {
        let (psp, qual) = self.b.listen()?;
        let code = self
            .a
            .dat
            .ep_connect(from, &self.b.attr, qual, microseconds, b"hello");
        ok(code, "dat_ep_connect")?;
        let cr = self.b.request()?;
        ok(self.b.dat.psp_free(psp), "dat_psp_free")?;
        Ok(cr)
    }
}
