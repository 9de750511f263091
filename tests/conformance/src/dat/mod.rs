//! The C function table as methods: all `unsafe` calls of the suite. Handles are plain words here, since the suite
//! tests that a provider refuses invalid ones.
//!
//! Structures and return codes are those of 2.0 for either version of the table: 1.2's are converted, so that one
//! statement serves both.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

use dat_abi::types::{
    DAT_NAME_MAX_LENGTH, DatCrParam, DatEvdParam, DatPspParam, DatPzParam, DatRspParam, DatSrqParam,
};
use dat_abi::v1_2;
use dat_abi::v2_0::types::{
    DatCnoParam, DatEpParam, DatIaAttr, DatLmrParam, DatProviderAttr, DatRmrParam,
};
use dat_core::error::{Error, Kind};

use crate::api::{Api, Table};
use crate::coverage::Coverage;
use crate::progress::Progress;

/// How to start a second process with the provider under test.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program and its arguments without the role, which comes last.
    pub command: Vec<String>,
}

/// A provider under test: its table, of either version, and the name of an IA.
#[derive(Clone, Debug)]
pub struct Dat {
    /// The registered table, for opening.
    opener: Table,
    /// The table that the provider's handles begin with, for all other calls. A provider with several engines has one
    /// table for each.
    table: Table,
    name: CString,
    coverage: Coverage,
    /// How to start a second process with the provider; `None` where no program can.
    launcher: Option<Launcher>,
    /// Number of connections, and of round trips, of statements about load.
    load: usize,
    /// How statements about load report that they go on.
    progress: Progress,
    /// True if nothing else runs in this process.
    alone: bool,
}

const NOT_IMPLEMENTED: u32 = Error::of(Kind::NotImplemented).code();

/// Calls a slot with each version's arguments; a missing slot returns `DAT_NOT_IMPLEMENTED`. The code is in 2.0's
/// numbers.
macro_rules! each {
    ($self:ident.$slot:ident { V1_2($($old:expr),* $(,)?), V2_0($($new:expr),* $(,)?) }) => {{
        let _inside = crate::calls::enter(concat!("dat_", stringify!($slot)));
        // SAFETY: pointers are to locals or leaked memory of the types that the slot names; handles may be
        // anything, which is what a provider is tested for.
        let code = unsafe {
            match $self.table {
                Table::V1_2(table) => table.$slot.map(|slot| slot($($old),*)),
                Table::V2_0(table) => table.$slot.map(|slot| slot($($new),*)),
            }
        };
        $self.noted(stringify!($slot), code)
    }};
}

/// Calls a slot that has the same arguments in both versions.
macro_rules! call {
    ($self:ident.$slot:ident($($arg:expr),* $(,)?)) => {
        each!($self.$slot { V1_2($($arg),*), V2_0($($arg),*) })
    };
}

/// Calls a slot that 1.2 does not have.
macro_rules! v2_only {
    ($self:ident.$slot:ident($($arg:expr),* $(,)?)) => {{
        let _inside = crate::calls::enter(concat!("dat_", stringify!($slot)));
        let code = match $self.table {
            Table::V1_2(_) => None,
            // SAFETY: as in `each`.
            Table::V2_0(table) => table.$slot.map(|slot| unsafe { slot($($arg),*) }),
        };
        $self.noted(stringify!($slot), code)
    }};
}

/// Defines methods that pass a few words and return the code.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, $($arg: $ty),*) -> u32 {
            call!(self.$name($($arg),*))
        }
    )*};
}

/// Defines methods that pass a few words and return a handle.
macro_rules! makes {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// The code of the call.
        pub fn $name(&self, $($arg: $ty),*) -> Result<usize, u32> {
            let mut handle = 0;
            value(call!(self.$name($($arg,)* &mut handle)), handle)
        }
    )*};
}

/// Defines methods that fill a parameter structure common to both versions.
macro_rules! queries {
    ($($(#[$doc:meta])* $name:ident -> $param:ty = $mask:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// The code of the call.
        pub fn $name(&self, handle: usize) -> Result<$param, u32> {
            let mut param = MaybeUninit::<$param>::zeroed();
            let code = call!(self.$name(handle, $mask, param.as_mut_ptr()));
            // SAFETY: all zero is a value of these structures: words, NULL pointers, no function.
            value(code, unsafe { param.assume_init() })
        }
    )*};
}

/// Defines methods that fill a parameter structure that differs: mask, type and conversion of 1.2, mask and type of
/// 2.0.
macro_rules! queries_of_each {
    ($($(#[$doc:meta])* $name:ident -> $old:ty = $old_mask:literal / $widen:path, $new:ty = $mask:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// The code of the call.
        pub fn $name(&self, handle: usize) -> Result<$new, u32> {
            let (mut old, mut new) = (MaybeUninit::<$old>::zeroed(), MaybeUninit::<$new>::zeroed());
            let code = each!(self.$name {
                V1_2(handle, $old_mask, old.as_mut_ptr()),
                V2_0(handle, $mask, new.as_mut_ptr())
            });
            // SAFETY: all zero is a value of these structures: words, NULL pointers, no function.
            let (old, new) = unsafe { (old.assume_init(), new.assume_init()) };
            value(code, if self.api() == Api::V1_2 { $widen(&old) } else { new })
        }
    )*};
}

mod convert;
mod ep;
mod evd;
mod memory;
mod v2_only;

pub use ep::{Post, field};
pub use evd::Agent;
pub use memory::{Region, Source};
pub use v2_only::{
    CommonServicePoint, DatagramPeer, Extension, address_of, readable, remote_address,
};

fn value<T>(code: u32, value: T) -> Result<T, u32> {
    if code == 0 { Ok(value) } else { Err(code) }
}

impl Dat {
    /// Creates the test access to the provider of `table`, which has an IA of that name.
    ///
    /// # Panics
    /// If the name contains a 0 byte.
    pub fn new(table: impl Into<Table>, name: &str) -> Self {
        let table = table.into();
        let mut dat = Self {
            opener: table,
            table,
            name: CString::new(name).expect("a name without 0"),
            coverage: Coverage::default(),
            launcher: None,
            load: 1000,
            progress: Progress::default(),
            alone: false,
        };
        if let Ok((ia, _)) = dat.ia_open() {
            // SAFETY: the provider has just made that handle.
            dat.table = unsafe { table.of_handle(ia) };
            dat.ia_close(ia, 0);
        }
        dat
    }

    /// Returns the version of the table under test.
    #[must_use]
    pub fn api(&self) -> Api {
        self.table.api()
    }

    /// Sets how statements start a second process with the provider.
    #[must_use]
    pub fn with_launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = Some(launcher);
        self
    }

    /// Sets the function that statements about load call when they have made progress. It must be quick.
    #[must_use]
    pub fn with_progress(mut self, report: impl Fn() + Send + Sync + 'static) -> Self {
        self.progress = Progress::by(report);
        self
    }

    /// Reports that the statement under test goes on.
    pub(crate) fn report_progress(&self) {
        self.progress.report();
    }

    /// Sets the number of connections of statements about load, 1,000 otherwise: an emulated machine is slow.
    #[must_use]
    pub fn with_load(mut self, connections: usize) -> Self {
        self.load = connections;
        self
    }

    /// Returns the number of connections of statements about load.
    pub(crate) fn load(&self) -> usize {
        self.load
    }

    /// Says that nothing else runs in this process, so that its memory is the provider's.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Returns true if nothing else runs in this process.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Returns how to start a second process.
    pub(crate) fn launcher(&self) -> Option<&Launcher> {
        self.launcher.as_ref()
    }

    /// Returns the record of the functions called so far.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Records a call, `None` for a missing slot; returns the code in 2.0's numbers.
    fn noted(&self, slot: &'static str, raw: Option<u32>) -> u32 {
        let code = raw.map_or(NOT_IMPLEMENTED, |raw| self.table.code(raw));
        self.coverage.note(slot, code);
        code
    }

    /// Calls dat_ia_open with an asynchronous EVD of its own: IA and EVD.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ia_open(&self) -> Result<(usize, usize), u32> {
        self.ia_open_as(&self.name.to_string_lossy())
    }

    /// Calls dat_ia_open with another name.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ia_open_as(&self, name: &str) -> Result<(usize, usize), u32> {
        let name = CString::new(name).unwrap_or_default();
        let name: *const c_char = name.as_ptr();
        let (mut ia, mut evd) = (0, 0);
        let slot = match self.opener {
            Table::V1_2(table) => table.ia_open,
            Table::V2_0(table) => table.ia_open,
        };
        // SAFETY: pointers are to locals.
        let code = slot.map(|slot| unsafe { slot(name, 8, &mut evd, &mut ia) });
        value(self.noted("ia_open", code), (ia, evd))
    }

    /// Calls dat_ia_query; returns attributes of adapter and provider.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ia_query(&self, ia: usize) -> Result<(DatIaAttr, DatProviderAttr), u32> {
        let mut evd = 0;
        let mut new = (
            MaybeUninit::<DatIaAttr>::zeroed(),
            MaybeUninit::<DatProviderAttr>::zeroed(),
        );
        let mut old = (
            MaybeUninit::<v1_2::types::DatIaAttr>::zeroed(),
            MaybeUninit::<v1_2::types::DatProviderAttr>::zeroed(),
        );
        // DAT_IA_FIELD_ALL and DAT_PROVIDER_FIELD_ALL of each version; DAPL refuses other bits.
        let code = each!(self.ia_query {
            V1_2(ia, &mut evd, 0x7_ffff_ffff, old.0.as_mut_ptr(), 0x3ff_ffff, old.1.as_mut_ptr()),
            V2_0(ia, &mut evd, 0x3f_ffff_ffff, new.0.as_mut_ptr(), 0x7fff_ffff, new.1.as_mut_ptr())
        });
        // SAFETY: all zero is a value of each: words and NULL pointers.
        let (old, new) = unsafe {
            (
                (old.0.assume_init(), old.1.assume_init()),
                (new.0.assume_init(), new.1.assume_init()),
            )
        };
        let widened = (convert::ia_attr(&old.0), convert::provider_attr(&old.1));
        value(
            code,
            if self.api() == Api::V1_2 {
                widened
            } else {
                new
            },
        )
    }

    plain! {
        // BEGIN slots.txt: calls
        /// Closes an IA.
        ia_close(ia: usize, flags: u32);
        /// Sets the context of an object.
        set_consumer_context(handle: usize, context: u64);
        /// Destroys a CNO.
        cno_free(cno: usize);
        /// Hands a connection request to another service point of the IA.
        cr_handoff(cr: usize, handoff: u64);
        /// Replaces the CNO of an EVD.
        evd_modify_cno(evd: usize, cno: usize);
        /// Lets an EVD notify its CNO.
        evd_enable(evd: usize);
        /// Stops an EVD from notifying its CNO.
        evd_disable(evd: usize);
        /// Changes the number of events that an EVD holds.
        evd_resize(evd: usize, min_qlen: i32);
        /// Destroys an EVD.
        evd_free(evd: usize);
        /// Disconnects an endpoint.
        ep_disconnect(ep: usize, flags: u32);
        /// Destroys an endpoint.
        ep_free(ep: usize);
        /// Destroys an LMR.
        lmr_free(lmr: usize);
        /// Destroys an RMR.
        rmr_free(rmr: usize);
        /// Destroys a public service point.
        psp_free(psp: usize);
        /// Destroys a reserved service point.
        rsp_free(rsp: usize);
        /// Destroys a protection zone.
        pz_free(pz: usize);
        /// Makes a disconnected endpoint usable again.
        ep_reset(ep: usize);
        /// Refuses waits on an EVD from now on.
        evd_set_unwaitable(evd: usize);
        /// Allows waits on an EVD again.
        evd_clear_unwaitable(evd: usize);
        /// Destroys a shared receive queue.
        srq_free(srq: usize);
        /// Changes the number of receives that a shared receive queue holds.
        srq_resize(srq: usize, max_recv_dtos: i32);
        /// Sets the low watermark of a shared receive queue.
        srq_set_lw(srq: usize, low_watermark: i32);
        // END slots.txt
    }

    makes! {
        // BEGIN slots.txt: constructors
        /// Creates an EVD.
        evd_create(ia: usize, min_qlen: i32, cno: usize, flags: u32);
        /// Creates an RMR (a memory window).
        rmr_create(pz: usize);
        /// Creates a public service point on a connection qualifier.
        psp_create(ia: usize, conn_qual: u64, evd: usize, flags: u32);
        /// Creates a reserved service point: one endpoint, one request.
        rsp_create(ia: usize, conn_qual: u64, ep: usize, evd: usize);
        /// Creates a protection zone.
        pz_create(ia: usize);
        // END slots.txt
    }

    queries! {
        /// Calls dat_cr_query.
        cr_query -> DatCrParam = 0x1f;
        /// Calls dat_evd_query.
        evd_query -> DatEvdParam = 0x1f;
        /// Calls dat_psp_query.
        psp_query -> DatPspParam = 0xf;
        /// Calls dat_rsp_query.
        rsp_query -> DatRspParam = 0xf;
        /// Calls dat_pz_query.
        pz_query -> DatPzParam = 0x1;
        /// Calls dat_srq_query.
        srq_query -> DatSrqParam = 0xff;
    }

    queries_of_each! {
        /// Calls dat_cno_query.
        cno_query -> v1_2::types::DatCnoParam = 0x3 / convert::cno_param, DatCnoParam = 0x3;
        /// Calls dat_ep_query.
        ep_query -> v1_2::types::DatEpParam = 0x1fff_ffff / convert::ep_param, DatEpParam = 0x3fff_ffff;
        /// Calls dat_lmr_query.
        lmr_query -> v1_2::types::DatLmrParam = 0x3ff / convert::lmr_param, DatLmrParam = 0x7ff;
        /// Calls dat_rmr_query.
        rmr_query -> v1_2::types::DatRmrParam = 0x1f / convert::rmr_param, DatRmrParam = 0x7f;
    }

    /// Calls dat_get_consumer_context.
    ///
    /// # Errors
    /// The code of the call.
    pub fn get_consumer_context(&self, any: usize) -> Result<u64, u32> {
        let mut context = 0;
        value(call!(self.get_consumer_context(any, &mut context)), context)
    }

    /// Calls dat_get_handle_type.
    ///
    /// # Errors
    /// The code of the call.
    pub fn get_handle_type(&self, any: usize) -> Result<u32, u32> {
        let mut kind = u32::MAX;
        value(call!(self.get_handle_type(any, &mut kind)), kind)
    }
}

/// Returns the text of a name in a fixed-size field.
pub(crate) fn text(name: &[c_char; DAT_NAME_MAX_LENGTH]) -> String {
    let bytes: Vec<u8> = name
        .iter()
        .map(|c| *c as u8)
        .take_while(|b| *b != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
