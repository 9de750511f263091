//! Calls that allocate, with little memory left. Each succeeds or returns DAT_INSUFFICIENT_RESOURCES; none aborts the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{null, null_mut};

use dat_abi::ret::TYPE_MASK;
use dat_abi::types::{
    DatHandle, DatOsWaitProxyAgent, DatProviderInfo, DatRegionDescription, DatSrqAttr,
};
use dat_abi::v2_0::table::DatProvider;
use dat_abi::v2_0::tables::provider_table;
use dat_abi::v2_0::types::{DatEpAttr, DatEvent, DatIaAttr};
use dat_loopback::Loopback;

thread_local! {
    /// Bytes that this thread may still allocate. Other threads are not limited.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Number of allocations of this thread that failed.
    static FAILED: Cell<u32> = const { Cell::new(0) };
}

struct Scarce;

// SAFETY: the system's allocator; an allocator may fail at any time.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let left = LEFT.get();
        if left == usize::MAX {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc(layout) };
        }
        match left.checked_sub(layout.size()) {
            Some(left) => {
                LEFT.set(left);
                // SAFETY: the caller's promise.
                unsafe { System.alloc(layout) }
            }
            None => {
                FAILED.set(FAILED.get() + 1);
                null_mut()
            }
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let left = LEFT.get();
        if left != usize::MAX {
            LEFT.set(left.saturating_add(layout.size()).min(usize::MAX - 1));
        }
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static SCARCE: Scarce = Scarce;

const INSUFFICIENT_RESOURCES: u32 = 0x0003_0000;
const EVD_CR: u32 = 0x10;
const EVD_DTO: u32 = 0x20;
const EVD_CONNECTION: u32 = 0x40;
const PRIV_ALL: u32 = 0x33;
const ESTABLISHED: u32 = 0x4001;

unsafe extern "C" fn add(_table: *const c_void, _info: *const DatProviderInfo) -> u32 {
    0
}

/// Calls a slot of the table with this thread's budget, and returns its code.
macro_rules! call {
    ($left:expr, $table:expr, $slot:ident($($arg:expr),* $(,)?)) => {{
        let slot = $table.$slot.expect("every slot is filled");
        LEFT.set($left);
        // SAFETY: pointers are NULL or valid.
        let code = unsafe { slot($($arg),*) };
        LEFT.set(usize::MAX);
        code
    }};
}

const PLENTY: usize = usize::MAX;

/// Runs `call` with increasing memory until it succeeds; before that it must return DAT_INSUFFICIENT_RESOURCES. `undo` frees the
/// object that it made.
fn with_scarce_memory(name: &str, mut call: impl FnMut(usize) -> u32, mut undo: impl FnMut()) {
    FAILED.set(0);
    let mut refused = 0;
    // From less than a reservation to more than the largest allocation, in steps around the size of each allocation.
    for left in (0..512 << 10).step_by(1 << 10) {
        match call(left) {
            0 => {
                undo();
                if left >= 384 << 10 {
                    break;
                }
            }
            code => {
                assert_eq!(
                    code & TYPE_MASK,
                    INSUFFICIENT_RESOURCES,
                    "{name} with {left}: {code:#x}"
                );
                refused += 1;
            }
        }
    }
    assert!(
        refused > 0 && FAILED.get() > 0,
        "{name} never ran out of memory"
    );
    assert_eq!(call(PLENTY), 0, "{name}");
    undo();
}

fn table_of(handle: DatHandle) -> &'static DatProvider {
    // SAFETY: the first word of every handle points to its table.
    unsafe { &**(handle as *const *const DatProvider) }
}

#[test]
fn calls_that_lack_memory_return_insufficient_resources() {
    let info = DatProviderInfo::new("loop", 2, 0, false);
    // SAFETY: a valid info, a C string, and a function of that type.
    unsafe { dat_abi::export::init::<Loopback>(&info, c"127.0.0.1 0".as_ptr(), Some(add)) };
    let (mut ia, mut evd) = (0, 0);
    let provider = provider_table::<Loopback>();
    let code = call!(
        PLENTY,
        provider,
        ia_open(c"loop".as_ptr(), 8, &mut evd, &mut ia)
    );
    assert_eq!(code, 0);
    let t = table_of(ia);
    let (mut pz, mut dto, mut conn, mut cr) = (0, 0, 0, 0);
    assert_eq!(call!(PLENTY, t, pz_create(ia, &mut pz)), 0);
    for (flags, evd) in [
        (EVD_DTO, &mut dto),
        (EVD_CONNECTION, &mut conn),
        (EVD_CR, &mut cr),
    ] {
        assert_eq!(call!(PLENTY, t, evd_create(ia, 64, 0, flags, evd)), 0);
    }

    let made = Cell::new(0);
    macro_rules! scarce {
        ($slot:ident($($arg:expr),* $(,)?), $free:ident($($more:expr),*)) => {
            with_scarce_memory(
                stringify!($slot),
                |left| {
                    let mut handle = 0;
                    let out = &raw mut handle;
                    let code = call!(left, t, $slot($($arg,)* out));
                    made.set(handle);
                    code
                },
                || assert_eq!(call!(PLENTY, t, $free(made.get() $(, $more)*)), 0),
            )
        };
    }
    let agent = DatOsWaitProxyAgent {
        instance_data: null_mut(),
        proxy_agent_func: None,
    };
    let mut srq_attr = DatSrqAttr {
        max_recv_dtos: 2000,
        max_recv_iov: 4,
        low_watermark: 0,
    };
    scarce!(pz_create(ia), pz_free());
    scarce!(rmr_create(pz), rmr_free());
    scarce!(cno_create(ia, agent), cno_free());
    scarce!(evd_create(ia, 16, 0, EVD_CONNECTION), evd_free());
    scarce!(evd_create(ia, 2000, 0, EVD_DTO), evd_free());
    scarce!(psp_create(ia, 777, cr, 0), psp_free());
    scarce!(srq_create(ia, pz, &mut srq_attr), srq_free());
    scarce!(
        ep_create(ia, pz, dto, dto, conn, null::<DatEpAttr>()),
        ep_free()
    );

    let mut memory = vec![0_u8; 4096];
    let region = DatRegionDescription {
        address: memory.as_mut_ptr() as usize,
        shared_memory_id: null(),
    };
    with_scarce_memory(
        "lmr_create",
        |left| {
            let mut handle = 0;
            let out = &raw mut handle;
            let none32 = null_mut::<u32>();
            let none64 = null_mut::<u64>();
            let code = call!(
                left,
                t,
                lmr_create(
                    ia, 0, region, 4096, pz, PRIV_ALL, 0, out, none32, none32, none64, none64
                )
            );
            made.set(handle);
            code
        },
        || assert_eq!(call!(PLENTY, t, lmr_free(made.get())), 0),
    );
    with_scarce_memory(
        "ia_open",
        |left| {
            let (mut handle, mut evd) = (0, 0);
            let (out, evd_out) = (&raw mut handle, &raw mut evd);
            let code = call!(left, provider, ia_open(c"loop".as_ptr(), 8, evd_out, out));
            made.set(handle);
            code
        },
        || assert_eq!(call!(PLENTY, t, ia_close(made.get(), 0)), 0),
    );
    let lengths = Cell::new(2000);
    with_scarce_memory(
        "evd_resize",
        |left| call!(left, t, evd_resize(dto, lengths.get())),
        || lengths.set(lengths.get() + 2000),
    );
    connect_with_scarce_memory(t, ia, [pz, dto, conn, cr]);
    // Closed abruptly, with the objects that are left.
    assert_eq!(call!(PLENTY, t, ia_close(ia, 0)), 0);
}

/// Repeats `call` with increasing memory until it succeeds; before that it must return DAT_INSUFFICIENT_RESOURCES.
fn until_it_succeeds(name: &str, mut call: impl FnMut(usize) -> u32) {
    for (refused, left) in (0..1 << 20).step_by(4 << 10).enumerate() {
        match call(left) {
            0 => {
                assert!(refused > 0, "{name} never ran out of memory");
                return;
            }
            code => assert_eq!(
                code & TYPE_MASK,
                INSUFFICIENT_RESOURCES,
                "{name}: {code:#x}"
            ),
        }
    }
    panic!("{name} does not succeed with a megabyte");
}

/// Connects two endpoints of `ia`. Each call that was refused can be repeated and then succeeds.
fn connect_with_scarce_memory(t: &DatProvider, ia: DatHandle, [pz, dto, conn, cr]: [DatHandle; 4]) {
    const FIVE_SECONDS: u32 = 5_000_000;
    let (mut psp, mut active, mut passive) = (0, 0, 0);
    assert_eq!(call!(PLENTY, t, psp_create(ia, 778, cr, 0, &mut psp)), 0);
    for ep in [&mut active, &mut passive] {
        let code = call!(
            PLENTY,
            t,
            ep_create(ia, pz, dto, dto, conn, null::<DatEpAttr>(), ep)
        );
        assert_eq!(code, 0);
    }
    // SAFETY: plain data, for which zeros are valid.
    let mut attr: DatIaAttr = unsafe { std::mem::zeroed() };
    let code = call!(
        PLENTY,
        t,
        ia_query(ia, null_mut(), u64::MAX, &mut attr, 0, null_mut())
    );
    assert_eq!(code, 0);
    let remote = attr.ia_address_ptr;
    until_it_succeeds("ep_connect", |left| {
        call!(
            left,
            t,
            ep_connect(active, remote, 778, FIVE_SECONDS, 0, null(), 0, 0)
        )
    });
    let wait = |evd| {
        let (mut event, mut more) = (DatEvent::default(), 0);
        let code = call!(
            PLENTY,
            t,
            evd_wait(evd, FIVE_SECONDS, 1, &mut event, &mut more)
        );
        assert_eq!(code, 0);
        event
    };
    let arrival = wait(cr);
    // SAFETY: an event of an EVD of requests.
    let request = unsafe { arrival.event_data.cr_arrival_event_data.cr_handle };
    until_it_succeeds("cr_accept", |left| {
        call!(left, t, cr_accept(request, passive, 0, null()))
    });
    for _ in 0..2 {
        let event = wait(conn);
        assert_eq!(event.event_number, ESTABLISHED);
    }
}
