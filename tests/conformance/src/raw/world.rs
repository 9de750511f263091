//! One object of each kind, created through the table under test.

use std::ffi::CString;
use std::mem::{MaybeUninit, offset_of};
use std::sync::atomic::{AtomicU64, Ordering};

use dat_abi::types::{DatCrParam, event_number};
use dat_abi::{v1_2, v2_0};
use dat_core::error::{Error, Subtype};

use super::functions::Thing;
use super::memory::arena;
use crate::api::{Api, Table};
use crate::verdict::{Check, broken};

/// A provider's table and the IA that it opens.
#[derive(Clone, Debug)]
pub struct Target {
    /// The registered table.
    pub opener: Table,
    /// Name of an IA.
    pub name: CString,
}

/// Size of the memory that a world registers, in bytes.
pub(crate) const MEMORY: usize = 4096;

/// An open IA with one live object of each kind and a connection; closed abruptly when dropped.
#[derive(Debug)]
pub struct World {
    /// The table of the IA's handles.
    pub(crate) table: Table,
    pub(crate) ia: usize,
    async_evd: usize,
    /// `DAT_IA_ADDRESS_PTR`.
    pub(crate) address: usize,
    pub(crate) pz: usize,
    recv: usize,
    request: usize,
    pub(crate) conn: usize,
    pub(crate) cr_evd: usize,
    soft: usize,
    cno: usize,
    /// An unconnected endpoint.
    pub(crate) ep: usize,
    /// Two endpoints connected to each other.
    pub(crate) joined: [usize; 2],
    pub(crate) lmr: usize,
    pub(crate) lmr_context: u32,
    pub(crate) rmr_context: u32,
    pub(crate) memory: &'static [AtomicU64],
    rmr: usize,
    psp: usize,
    pub(crate) qual: u64,
    /// Name that is unique among all worlds.
    name: u64,
    rsp: usize,
    /// The CSP; 0 in 1.2, which has none.
    csp: usize,
    cr: usize,
    srq: usize,
    /// One freed handle of each kind.
    dead: Vec<(Thing, usize)>,
}

/// Number of worlds created in this process.
static WORLDS: AtomicU64 = AtomicU64::new(0);

/// Timeout of an event, in microseconds.
const TIMEOUT: usize = 10_000_000;

impl Drop for World {
    fn drop(&mut self) {
        // A test may have closed the IA; its handle may already belong to another one. Then `ia` is 0.
        if self.ia == 0 {
            return;
        }
        // SAFETY: no pointers.
        let _ = unsafe { self.table.call("ia_close", &[self.ia, 0]) };
    }
}

/// Makes a call that must succeed.
///
/// # Safety
/// As [`Table::call`].
unsafe fn must(table: Table, name: &str, words: &[usize]) -> Check {
    // SAFETY: the caller's promise.
    match unsafe { table.call(name, words) } {
        Some(0) => Ok(()),
        Some(code) => {
            let why = Error::from_code(code).map_or_else(String::new, |e| e.to_string());
            broken(format!(
                "dat_{name} with valid arguments returned {why} ({code:#x}); expected DAT_SUCCESS"
            ))
        }
        None => broken(format!("the table has no {name}")),
    }
}

fn at<T>(place: &mut T) -> usize {
    std::ptr::from_mut(place) as usize
}

impl World {
    /// Opens the IA and creates the objects.
    pub fn open(target: &Target) -> Check<Self> {
        let (mut ia, mut async_evd) = (0_usize, 0_usize);
        let name = target.name.as_ptr() as usize;
        // SAFETY: a C string, and places for handles.
        unsafe {
            must(
                target.opener,
                "ia_open",
                &[name, 8, at(&mut async_evd), at(&mut ia)],
            )?;
        }
        // SAFETY: a live handle.
        let table = unsafe { target.opener.of_handle(ia) };
        let mut world = Self {
            table,
            ia,
            async_evd,
            address: 0,
            pz: 0,
            recv: 0,
            request: 0,
            conn: 0,
            cr_evd: 0,
            soft: 0,
            cno: 0,
            ep: 0,
            joined: [0; 2],
            lmr: 0,
            lmr_context: 0,
            rmr_context: 0,
            memory: arena(MEMORY),
            rmr: 0,
            psp: 0,
            qual: 0,
            name: u64::from(std::process::id()) << 32 | WORLDS.fetch_add(1, Ordering::Relaxed),
            rsp: 0,
            csp: 0,
            cr: 0,
            srq: 0,
            dead: Vec::new(),
        };
        world.address = world.ask_address()?;
        world.pz = world.make("pz_create", &[ia])?;
        world.recv = world.evd(0x20)?;
        world.request = world.evd(0xa0)?;
        world.conn = world.evd(0x40)?;
        world.cr_evd = world.evd(0x10)?;
        world.soft = world.evd(0x01)?;
        world.cno = world.make("cno_create", &[ia, 0, 0])?;
        world.ep = world.endpoint()?;
        world.register()?;
        world.rmr = world.make("rmr_create", &[world.pz])?;
        let mut srq_attr = [4_u32, 1, 0];
        world.srq = world.make("srq_create", &[ia, world.pz, at(&mut srq_attr)])?;
        world.listen()?;
        world.joined = [world.endpoint()?, world.endpoint()?];
        world.connect(world.joined[0])?;
        world.cr = world.request()?;
        world.call("cr_accept", &[world.cr, world.joined[1], 0, 0])?;
        world.event(world.conn)?;
        world.event(world.conn)?;
        let asking = world.endpoint()?;
        world.connect(asking)?;
        world.cr = world.request()?;
        let reserved = world.endpoint()?;
        let qual = world.qual as usize;
        world.rsp = world.free_qual(qual, reserved)?;
        if table.api() == Api::V2_0 {
            let mut comm = world.comm();
            let words = [ia, at(&mut comm), world.address, world.cr_evd];
            world.csp = world.make("csp_create", &words)?;
        }
        world.free_one_of_each()?;
        Ok(world)
    }

    /// Makes a call with valid arguments: numbers, handles, and addresses that the function needs.
    pub(crate) fn call(&self, name: &str, words: &[usize]) -> Check {
        // SAFETY: the pointers that the callers in this file pass are to locals of the types that the slot wants.
        unsafe { must(self.table, name, words) }
    }

    /// Creates an object; the pointer for its handle is the last argument.
    pub(crate) fn make(&self, name: &str, words: &[usize]) -> Check<usize> {
        let mut made = 0_usize;
        let mut all = words.to_vec();
        all.push(at(&mut made));
        self.call(name, &all)?;
        Ok(made)
    }

    fn evd(&self, flags: usize) -> Check<usize> {
        self.make("evd_create", &[self.ia, 64, 0, flags])
    }

    /// Returns the arguments of dat_ep_create without the pointer for the handle.
    pub(crate) fn parts(&self) -> [usize; 6] {
        [
            self.ia,
            self.pz,
            self.recv,
            self.request,
            self.conn,
            0, // default attributes
        ]
    }

    pub(crate) fn endpoint(&self) -> Check<usize> {
        self.make("ep_create", &self.parts())
    }

    fn ask_address(&self) -> Check<usize> {
        let mut attr = [0_u64; 128];
        let words = [self.ia, 0, usize::MAX, at(&mut attr), 0, 0];
        self.call("ia_query", &words)?;
        let offset = match self.table.api() {
            Api::V1_2 => offset_of!(v1_2::types::DatIaAttr, ia_address_ptr),
            Api::V2_0 => offset_of!(v2_0::types::DatIaAttr, ia_address_ptr),
        };
        Ok(attr[offset / 8] as usize)
    }

    /// Returns a `DAT_COMM` for the IA's address family: a TCP stream.
    pub(crate) fn comm(&self) -> [u32; 3] {
        // SAFETY: a socket address, which the provider keeps, begins with its family.
        let family = unsafe { (self.address as *const u16).read() };
        [family.into(), 1, 6]
    }

    fn register(&mut self) -> Check {
        let (mut lmr, mut own, mut remote) = (0_usize, 0_u32, 0_u32);
        let memory = self.memory.as_ptr() as usize;
        let mut words = vec![self.ia, 0, memory, 0, MEMORY, self.pz, 0x33];
        if self.table.api() == Api::V2_0 {
            words.push(0);
        }
        words.extend([at(&mut lmr), at(&mut own), at(&mut remote), 0, 0]);
        self.call("lmr_create", &words)?;
        (self.lmr, self.lmr_context, self.rmr_context) = (lmr, own, remote);
        Ok(())
    }

    fn listen(&mut self) -> Check {
        let (mut psp, mut qual) = (0_usize, 0_u64);
        let words = [self.ia, at(&mut qual), self.cr_evd, 0, at(&mut psp)];
        self.call("psp_create_any", &words)?;
        (self.psp, self.qual) = (psp, qual);
        Ok(())
    }

    /// Creates a reserved service point at the first free qualifier from `qual`.
    fn free_qual(&self, qual: usize, ep: usize) -> Check<usize> {
        let mut last = broken("no qualifier");
        for more in 1..50 {
            last = self.make("rsp_create", &[self.ia, qual + more, ep, self.cr_evd]);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// Connects to this world, with its name as private data.
    fn connect(&self, ep: usize) -> Check {
        let (qual, mut name) = (self.qual as usize, self.name);
        let (size, data) = (size_of_val(&name), at(&mut name));
        self.call(
            "ep_connect",
            &[ep, self.address, qual, TIMEOUT, size, data, 0, 0],
        )
    }

    /// Waits for the next event; returns its number, and the fourth word of its data.
    pub(crate) fn event(&self, evd: usize) -> Check<(u32, usize)> {
        let (mut event, mut more) = ([0_u64; 16], 0_i32);
        self.call(
            "evd_wait",
            &[evd, TIMEOUT, 1, at(&mut event), at(&mut more)],
        )?;
        Ok((event[0] as u32, event[CR_WORD] as usize))
    }

    /// Waits for this world's own request. A former world with the same qualifier may have left one in flight.
    fn request(&self) -> Check<usize> {
        loop {
            match self.event(self.cr_evd)? {
                (event_number::CONNECTION_REQUEST, cr) if self.is_own(cr)? => return Ok(cr),
                (event_number::CONNECTION_REQUEST, cr) => self.call("cr_reject", &[cr, 0, 0])?,
                (number, _) => {
                    return broken(format!(
                        "dat_evd_wait returned event {number:#x}; expected a connection request"
                    ));
                }
            }
        }
    }

    fn is_own(&self, cr: usize) -> Check<bool> {
        let mut param = MaybeUninit::<DatCrParam>::zeroed();
        self.call("cr_query", &[cr, 0x1f, at(&mut param)])?;
        // SAFETY: plain data, zeroed and then filled.
        let param = unsafe { param.assume_init() };
        if (param.private_data_size as usize) < size_of_val(&self.name) {
            return Ok(false);
        }
        // SAFETY: as long as the size says, while the request is unanswered.
        let name = unsafe { param.private_data.cast::<u64>().read_unaligned() };
        Ok(name == self.name)
    }

    /// Creates and frees one object of each kind.
    fn free_one_of_each(&mut self) -> Check {
        let pz = self.make("pz_create", &[self.ia])?;
        let evd = self.evd(0x01)?;
        let cno = self.make("cno_create", &[self.ia, 0, 0])?;
        let ep = self.endpoint()?;
        let rmr = self.make("rmr_create", &[self.pz])?;
        let mut srq_attr = [4_u32, 1, 0];
        let srq = self.make("srq_create", &[self.ia, self.pz, at(&mut srq_attr)])?;
        let (lmr, keys) = (self.lmr, (self.lmr_context, self.rmr_context));
        self.register()?;
        let gone = std::mem::replace(&mut self.lmr, lmr);
        (self.lmr_context, self.rmr_context) = keys;
        for (thing, handle, free) in [
            (Thing::Pz, pz, "pz_free"),
            (Thing::Evd, evd, "evd_free"),
            (Thing::Cno, cno, "cno_free"),
            (Thing::Ep, ep, "ep_free"),
            (Thing::Rmr, rmr, "rmr_free"),
            (Thing::Srq, srq, "srq_free"),
            (Thing::Lmr, gone, "lmr_free"),
        ] {
            self.call(free, &[handle])?;
            self.dead.push((thing, handle));
        }
        Ok(())
    }

    /// Returns the live object of a kind; the subtype selects the EVD.
    pub(crate) fn one(&self, thing: Thing, wanted: Subtype) -> usize {
        match (thing, wanted) {
            (Thing::Ia, _) => self.ia,
            (Thing::Pz, _) => self.pz,
            (Thing::Evd, Subtype::InvalidHandleEvdCr) => self.cr_evd,
            (Thing::Evd, Subtype::InvalidHandleEvdRecv) => self.recv,
            (Thing::Evd, Subtype::InvalidHandleEvdRequest) => self.request,
            (Thing::Evd, Subtype::InvalidHandleEvdConn) => self.conn,
            (Thing::Evd, _) => self.soft,
            (Thing::Cno, _) => self.cno,
            (Thing::Ep, _) => self.ep,
            (Thing::Lmr, _) => self.lmr,
            (Thing::Rmr, _) => self.rmr,
            (Thing::Psp, _) => self.psp,
            (Thing::Rsp, _) => self.rsp,
            (Thing::Csp, _) => self.csp,
            (Thing::Cr, _) => self.cr,
            (Thing::Srq, _) => self.srq,
        }
    }

    /// Returns all EVDs but the asynchronous one.
    pub(crate) fn evds(&self) -> [usize; 5] {
        [self.recv, self.request, self.conn, self.cr_evd, self.soft]
    }

    /// Returns all live handles.
    pub(crate) fn all(&self) -> Vec<(Thing, usize)> {
        let mut all: Vec<_> = [
            Thing::Ia,
            Thing::Pz,
            Thing::Evd,
            Thing::Cno,
            Thing::Ep,
            Thing::Lmr,
            Thing::Rmr,
            Thing::Psp,
            Thing::Rsp,
            Thing::Csp,
            Thing::Cr,
            Thing::Srq,
        ]
        .into_iter()
        .map(|thing| (thing, self.one(thing, Subtype::NoSubtype)))
        .filter(|(_, handle)| *handle != 0)
        .collect();
        all.extend(
            [
                self.recv,
                self.request,
                self.conn,
                self.cr_evd,
                self.async_evd,
            ]
            .map(|evd| (Thing::Evd, evd)),
        );
        all.extend(self.joined.map(|ep| (Thing::Ep, ep)));
        all
    }

    /// Returns all live handles, for use as foreign handles with another provider.
    #[must_use]
    pub fn handles(&self) -> Vec<usize> {
        self.all().into_iter().map(|(_, handle)| handle).collect()
    }

    /// Returns the freed handles.
    pub(crate) fn freed(&self) -> &[(Thing, usize)] {
        &self.dead
    }
}

/// Word of the CR in a `DAT_EVENT` with a connection request, in both versions.
pub(crate) const CR_WORD: usize = offset_of!(v2_0::types::DatEvent, event_data) / 8 + 3;
