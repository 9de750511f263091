//! The structures of `dat_transport.h`, and the table of the transport that this library is linked with. `tests/header.rs` compares them
//! with the header.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use dat_core::error::{Error, Kind, Result};
use dat_core::iov::LmrTriplet;
use libc::sockaddr_storage;

/// A context of the transport.
pub type Context = *mut c_void;
/// A return code, `DAT_RETURN`.
pub type Code = u32;
/// A `dat_transport_cq`, which C does not look into.
pub type CqPointer = *const c_void;

/// Version of the table, `DAT_TRANSPORT_VERSION`.
pub const VERSION: u32 = 1;

/// `struct dat_transport_pz`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header documents the fields")]
pub struct PzView {
    pub adapter: Context,
    pub context: Context,
    pub number: u32,
    pub reserved: u32,
}

/// `struct dat_transport_attr`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "the header documents the fields")]
pub struct Attr {
    pub adapter_name: [c_char; 64],
    pub vendor_name: [c_char; 64],
    pub address: sockaddr_storage,
    pub max_message_size: u64,
    pub max_rdma_size: u64,
    pub max_eps: u32,
    pub max_dto_per_ep: u32,
    pub max_iov: u32,
    pub max_rdma_read_in: u32,
    pub max_rdma_read_out: u32,
    pub max_private_data_size: u32,
    pub max_srqs: u32,
    pub max_rmrs: u32,
    pub zero_based: u8,
    pub atomics: u8,
    pub immediate: u8,
    pub reserved: [u8; 5],
}

/// `struct dat_transport_qp_caps`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header documents the fields")]
pub struct Caps {
    pub max_request: u32,
    pub max_recv: u32,
    pub max_request_iov: u32,
    pub max_recv_iov: u32,
    pub rdma_read_in: u32,
    pub rdma_read_out: u32,
}

/// `struct dat_transport_request`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header documents the fields")]
pub struct Post {
    pub id: u64,
    pub op: u32,
    pub flags: u32,
    pub iov: *const LmrTriplet,
    pub length: u64,
    pub remote_address: u64,
    pub operands: [u64; 2],
    pub iov_count: u32,
    pub key: u32,
    pub immediate: u32,
    pub reserved: u32,
}

/// `struct dat_transport_bind`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header documents the fields")]
pub struct BindPost {
    pub id: u64,
    pub rmr: Context,
    pub lmr: Context,
    pub address: u64,
    pub length: u64,
    pub rights: u32,
    pub va_type: u32,
    pub flags: u32,
    pub bound: u32,
}

/// `struct dat_transport_completion`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header documents the fields")]
pub struct Done {
    pub id: u64,
    pub ep: u64,
    pub status: u32,
    pub receive: u32,
    pub length: u32,
    pub immediate: u32,
    pub invalidated: u32,
    pub solicited: u32,
}

/// `struct dat_transport_connect`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "the header documents the fields")]
pub struct ConnectTo {
    pub token: u64,
    pub conn_qual: u64,
    pub remote: sockaddr_storage,
    pub private_data: *const c_void,
    pub private_data_size: u32,
    pub reserved: u32,
    pub timeout: u64,
}

/// `struct dat_transport_arrival`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "the header documents the fields")]
pub struct Arrived {
    pub remote: sockaddr_storage,
    pub local: sockaddr_storage,
    pub private_data: *const c_void,
    pub private_data_size: u32,
    pub reserved: u32,
}

/// Operations of a request.
pub mod op {
    /// `DAT_TRANSPORT_SEND`.
    pub const SEND: u32 = 0;
    /// `DAT_TRANSPORT_SEND_INVALIDATE`.
    pub const SEND_INVALIDATE: u32 = 1;
    /// `DAT_TRANSPORT_SEND_IMMEDIATE`.
    pub const SEND_IMMEDIATE: u32 = 2;
    /// `DAT_TRANSPORT_WRITE`.
    pub const WRITE: u32 = 3;
    /// `DAT_TRANSPORT_WRITE_IMMEDIATE`.
    pub const WRITE_IMMEDIATE: u32 = 4;
    /// `DAT_TRANSPORT_READ`.
    pub const READ: u32 = 5;
    /// `DAT_TRANSPORT_COMPARE_SWAP`.
    pub const COMPARE_SWAP: u32 = 6;
    /// `DAT_TRANSPORT_FETCH_ADD`.
    pub const FETCH_ADD: u32 = 7;
}

/// Flags of a request and a bind: a success completes, too.
pub const SIGNALED: u32 = 1;
/// The peer's completion is solicited.
pub const SOLICITED: u32 = 2;
/// The request waits for earlier RDMA Reads.
pub const FENCE: u32 = 4;

macro_rules! table {
    ($($slot:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// `struct dat_transport`.
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        #[allow(missing_docs, reason = "the header documents the slots")]
        pub struct Table {
            pub version: u32,
            pub size: u32,
            pub name: *const c_char,
            pub settings: *const *const c_char,
            $(pub $slot: Option<unsafe extern "C" fn($($argument),*) $(-> $result)?>,)*
        }

        impl Table {
            /// A table without slots.
            pub const EMPTY: Self = Self {
                version: VERSION,
                size: size_of::<Self>() as u32,
                name: std::ptr::null(),
                settings: std::ptr::null(),
                $($slot: None,)*
            };

            /// Names of the slots, with their offsets.
            pub const SLOTS: &'static [(&'static str, usize)] = &[$((stringify!($slot), std::mem::offset_of!(Self, $slot)),)*];
        }
    };
}

table! {
    open: fn(*const c_char, *const c_char, u32, *const *const c_char, u64, *mut Context) -> Code;
    close: fn(Context);
    free_adapter: fn(Context);
    attributes: fn(Context, *mut Attr);
    create_pz: fn(Context, *mut Context) -> Code;
    free_pz: fn(Context);
    register_memory: fn(*const PzView, *mut c_void, u64, u32, u32, *mut u32, *mut u32, *mut Context) -> Code;
    deregister: fn(Context);
    create_rmr: fn(*const PzView, u32, *mut Context) -> Code;
    free_rmr: fn(Context);
    post_bind: fn(Context, *const BindPost, *mut u32) -> Code;
    create_srq: fn(*const PzView, u32, u32, u64, *mut Context) -> Code;
    free_srq: fn(Context);
    resize_srq: fn(Context, u32) -> Code;
    arm_srq_limit: fn(Context, u32) -> Code;
    post_srq_recv: fn(Context, u64, *const LmrTriplet, u32) -> Code;
    create_qp: fn(*const PzView, *const Caps, CqPointer, CqPointer, Context, u32, u64, *mut Context) -> Code;
    free_qp: fn(Context);
    reset_qp: fn(Context) -> Code;
    post_send: fn(Context, *const Post) -> Code;
    post_recv: fn(Context, u64, *const LmrTriplet, u32) -> Code;
    listen: fn(Context, *mut u64, u64, *mut Context) -> Code;
    free_listener: fn(Context);
    connect: fn(Context, Context, *const ConnectTo) -> Code;
    accept: fn(Context, Context, u64, *const c_void, u32) -> Code;
    reject: fn(Context, *const c_void, u32) -> Code;
    free_request: fn(Context);
    disconnect: fn(Context);
    message_received: fn(Context);
    local_port: fn(Context) -> u16;
}

// SAFETY: name and settings point to constants of the transport, and its functions may be called by any thread: the header demands both.
unsafe impl Send for Table {}
// SAFETY: as above; the table is only read.
unsafe impl Sync for Table {}

static TABLE: OnceLock<Table> = OnceLock::new();
static EMPTY: Table = Table::EMPTY;

/// Returns the table of this process's transport.
pub fn table() -> &'static Table {
    TABLE.get().unwrap_or(&EMPTY)
}

impl Table {
    /// Names what makes the table unusable, in the words of a log line.
    fn fault(&self) -> Option<String> {
        let mut lacks = Vec::new();
        let mut need = |there: bool, slot: &'static str| {
            if !there {
                lacks.push(slot);
            }
        };
        need(!self.name.is_null(), "name");
        need(self.open.is_some(), "open");
        need(self.attributes.is_some(), "attributes");
        need(
            self.register_memory.is_some() == self.deregister.is_some(),
            "register_memory or deregister",
        );
        need(self.create_qp.is_some(), "create_qp");
        need(self.free_qp.is_some(), "free_qp");
        need(self.reset_qp.is_some(), "reset_qp");
        need(self.post_send.is_some(), "post_send");
        need(self.post_recv.is_some(), "post_recv");
        need(self.listen.is_some(), "listen");
        need(self.free_listener.is_some(), "free_listener");
        need(self.connect.is_some(), "connect");
        need(self.accept.is_some(), "accept");
        need(self.reject.is_some(), "reject");
        need(self.free_request.is_some(), "free_request");
        need(self.disconnect.is_some(), "disconnect");
        (!lacks.is_empty()).then(|| {
            format!(
                "its table lacks {}: fill in every slot that dat_transport.h marks as required",
                lacks.join(", ")
            )
        })
    }

    /// Reads the table at `from`, as long as it says that it is. Slots behind its end are empty.
    ///
    /// # Safety
    /// `from` is NULL, or points to as many bytes as its `size` says, and to 8 at least.
    ///
    /// # Errors
    /// What is wrong with it, in the words of a log line.
    unsafe fn read(from: *const Self) -> Result<Self, String> {
        if from.is_null() || !from.is_aligned() {
            return Err("its table is NULL or misaligned".into());
        }
        // SAFETY: 8 bytes are there by the caller's promise.
        let (version, size) = unsafe { ((*from).version, (*from).size as usize) };
        if version != VERSION {
            // A table that is written without the macro has zeros here.
            let remedy = match version {
                0 => "begin the table with DAT_TRANSPORT_HEAD",
                _ => "use header and library of the same kit",
            };
            return Err(format!(
                "its table has version {version}, this library knows version {VERSION}: {remedy}"
            ));
        }
        let mut table = Self::EMPTY;
        // Half a slot is no address.
        let whole = size - size % align_of::<Self>();
        let known = whole.min(size_of::<Self>());
        // SAFETY: `size` bytes are there by the caller's promise, and `table` has room for `known`. Every bit pattern that C writes is a
        // value of these fields.
        unsafe {
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut table).cast(), known);
        }
        table.fault().map_or(Ok(table), Err)
    }
}

/// Takes the transport's table, of which a process's copy of this library has one.
///
/// # Safety
/// `from` is NULL or a table that begins with its version and its size.
///
/// # Errors
/// `DAT_INVALID_PARAMETER`; the log says what is wrong.
pub unsafe fn take(from: *const Table) -> Result<()> {
    if TABLE.get().is_some() {
        return Ok(());
    }
    // SAFETY: the caller's promise is the same.
    let table = unsafe { Table::read(from) }.map_err(|why| {
        tracing::error!("this transport in C is not used: {why}");
        Error::of(Kind::InvalidParameter)
    })?;
    // Another thread may have taken the same table.
    let _ = TABLE.set(table);
    Ok(())
}

/// Returns the text at `from`; empty for NULL.
///
/// # Safety
/// `from` is NULL or a C string.
pub unsafe fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: a C string by the caller's promise.
    unsafe { CStr::from_ptr(from) }
        .to_string_lossy()
        .into_owned()
}

/// Returns the settings that the transport knows.
pub fn settings() -> Vec<String> {
    let mut at = table().settings;
    let mut all = Vec::new();
    // SAFETY: NULL, or a list of C strings with NULL at its end: the header demands it.
    while !at.is_null() && unsafe { !(*at).is_null() } {
        // SAFETY: as above.
        unsafe {
            all.push(text(*at));
            at = at.add(1);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_cannot_work_is_refused_with_what_it_lacks() {
        let mut table = Table::EMPTY;
        // SAFETY: a whole table.
        let read = |table: &Table| unsafe { Table::read(table) }.map(|_| ());
        let lacks = read(&table).unwrap_err();
        for slot in ["name", "open", "post_send", "disconnect"] {
            assert!(lacks.contains(slot), "{lacks}");
        }
        assert!(!lacks.contains("post_bind"), "{lacks}");
        table.version = 2;
        assert!(read(&table).unwrap_err().contains("version 2"));
        table.version = 0;
        assert!(read(&table).unwrap_err().contains("DAT_TRANSPORT_HEAD"));
        // SAFETY: NULL is allowed.
        assert!(unsafe { Table::read(std::ptr::null()) }.is_err());
    }

    #[test]
    fn slots_behind_the_size_count_as_null() {
        unsafe extern "C" fn nothing(_: Context) {}
        let mut table = Table::EMPTY;
        table.disconnect = Some(nothing);
        table.size = std::mem::offset_of!(Table, disconnect) as u32;
        // SAFETY: a whole table.
        let lacks = unsafe { Table::read(&table) }.unwrap_err();
        assert!(lacks.contains("disconnect"), "{lacks}");
        // Half of a slot is none.
        table.size += 4;
        // SAFETY: a whole table.
        let lacks = unsafe { Table::read(&table) }.unwrap_err();
        assert!(lacks.contains("disconnect"), "{lacks}");
    }
}
