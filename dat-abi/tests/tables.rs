//! Calls through the C function tables of both versions, over the loopback transport: as MPIs do, which take the table from the
//! head of a handle, and with invalid handles.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use dat_abi::ret::{TYPE_MASK, from_v1_2};
use dat_abi::types::{
    DAT_HANDLE_NULL, DatCrParam, DatEvdParam, DatHandle, DatOsWaitProxyAgent, DatProviderInfo,
    DatRegionDescription, DatSrqAttr, DatSrqParam, event_number, handle_type,
};
use dat_core::error::Error;
use dat_loopback::Loopback;

const EVD_CR: u32 = 0x10;
const EVD_DTO: u32 = 0x20;
const EVD_CONNECTION: u32 = 0x40;
const EVD_RMR_BIND: u32 = 0x80;
const ESTABLISHED: u32 = 0x4001;
const DISCONNECTED: u32 = 0x4005;
const INVALID_HANDLE: u32 = 0x0005_0000;
const INVALID_STATE: u32 = 0x0007_0000;
const PRIV_ALL: u32 = 0x33;
const FIVE_SECONDS: u32 = 5_000_000;
/// `DAT_COMPLETION_UNSIGNALLED_FLAG`.
const UNSIGNALLED: u32 = 4;

/// Returns a guard that runs one test at a time. Tests use stale handles, and the address of a stale handle is used again after other
/// tests created many objects.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a table: does nothing.
unsafe extern "C" fn add(table: *const c_void, info: *const DatProviderInfo) -> u32 {
    u32::from(table.is_null() || info.is_null())
}

/// Initialises the provider for each version, as a registry does.
fn initialise() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for major in [1, 2] {
            for (name, params) in [("loop", c"127.0.0.1 0"), ("link", c"fe80::1 0")] {
                let info = DatProviderInfo::new(name, major, 0, false);
                // SAFETY: a valid info, a C string, and a function of that type.
                unsafe { dat_abi::export::init::<Loopback>(&info, params.as_ptr(), Some(add)) };
            }
        }
    });
}

#[test]
fn the_tables_of_two_ias_of_one_engine_have_the_same_functions() {
    use dat_abi::v2_0::table::DatProvider;
    use dat_abi::v2_0::tables::table;
    let first = table::<Loopback>(c"first".as_ptr());
    let second = table::<Loopback>(c"second".as_ptr());
    assert!(first.has_functions_of(&second));
    let other = DatProvider {
        evd_dequeue: None,
        ..second
    };
    assert!(!first.has_functions_of(&other) && !other.has_functions_of(&first));
}

/// Returns the scope of a `sockaddr_in6`.
fn scope(at: *const c_void) -> u32 {
    // SAFETY: an IPv6 address, of 28 bytes.
    unsafe { at.cast::<u32>().add(6).read_unaligned() }
}

/// Calls a slot, and returns its code in 2.0's numbers.
macro_rules! call {
    ($table:expr, $slot:ident($($arg:expr),* $(,)?)) => {{
        let slot = $table.$slot.expect("no slot of ours is NULL");
        // SAFETY: pointers are NULL or valid; handles may be anything.
        normal(unsafe { slot($($arg),*) })
    }};
}

/// Calls a slot that must succeed.
macro_rules! ok {
    ($table:expr, $slot:ident($($arg:expr),* $(,)?)) => {
        assert_eq!(call!($table, $slot($($arg),*)), 0, stringify!($slot))
    };
}

/// Defines the tests for the types and the table of one version.
macro_rules! version {
    ($module:ident, $major:literal, $normal:path, $own:path) => {
        mod $module {
            use super::*;
            use dat_abi::$module::table::DatProvider;
            use dat_abi::$module::tables::provider_table;
            use dat_abi::$module::types::*;
            use $normal as normal;
            use $own::*;

            fn table_of(handle: DatHandle) -> &'static DatProvider {
                // SAFETY: the first word of every handle points to its table.
                unsafe { &**(handle as *const *const DatProvider) }
            }

            /// Opens an IA. Returns its table, its handle and its asynchronous EVD.
            fn open() -> (&'static DatProvider, DatHandle, DatHandle) {
                open_named("loop")
            }

            fn open_named(name: &str) -> (&'static DatProvider, DatHandle, DatHandle) {
                initialise();
                let name = CString::new(name).unwrap();
                let (mut ia, mut async_evd) = (0, DAT_HANDLE_NULL);
                ok!(
                    provider_table::<Loopback>(),
                    ia_open(name.as_ptr(), 8, &mut async_evd, &mut ia)
                );
                assert_ne!(async_evd, DAT_HANDLE_NULL);
                (table_of(ia), ia, async_evd)
            }

            fn event() -> DatEvent {
                // SAFETY: all zeros are a DAT_EVENT.
                unsafe { std::mem::zeroed() }
            }

            /// Returns the next event of an EVD, which must be `number`.
            fn wait(evd: DatHandle, number: u32) -> DatEvent {
                let (mut event, mut more) = (event(), 0);
                let table = table_of(evd);
                ok!(table, evd_wait(evd, FIVE_SECONDS, 1, &mut event, &mut more));
                assert_eq!((event.event_number, event.evd_handle), (number, evd));
                event
            }

            struct Side {
                ep: DatHandle,
                dto: DatHandle,
                conn: DatHandle,
                lmr: DatHandle,
                key: u32,
                remote_key: u32,
                memory: Vec<u64>,
            }

            impl Side {
                fn at(&self) -> u64 {
                    self.memory.as_ptr() as u64
                }
            }

            fn side(table: &DatProvider, ia: DatHandle, pz: DatHandle, fill: u64) -> Side {
                let mut s = Side {
                    ep: 0,
                    dto: 0,
                    conn: 0,
                    lmr: 0,
                    key: 0,
                    remote_key: 0,
                    memory: vec![fill; 512],
                };
                ok!(
                    table,
                    evd_create(ia, 20, 0, EVD_DTO | EVD_RMR_BIND, &mut s.dto)
                );
                ok!(
                    table,
                    evd_create(ia, 20, 0, EVD_CONNECTION | EVD_CR, &mut s.conn)
                );
                ok!(
                    table,
                    ep_create(ia, pz, s.dto, s.dto, s.conn, null(), &mut s.ep)
                );
                let region = DatRegionDescription {
                    address: s.memory.as_mut_ptr() as usize,
                    shared_memory_id: null(),
                };
                let (mut size, mut start) = (0, 0);
                let code = lmr_create(
                    table,
                    ia,
                    region,
                    4096,
                    pz,
                    &mut s.lmr,
                    &mut s.key,
                    &mut s.remote_key,
                    &mut size,
                    &mut start,
                );
                assert_eq!((normal(code), size, start), (0, 4096, s.at()));
                assert_ne!(s.remote_key, 0);
                s
            }

            fn free_side(table: &DatProvider, s: &Side) {
                ok!(table, ep_free(s.ep));
                ok!(table, lmr_free(s.lmr));
                ok!(table, evd_free(s.dto));
                ok!(table, evd_free(s.conn));
            }

            /// Connects two endpoints of `ia`, without private data. Returns its address, the service point, and the request's event.
            fn ask(
                table: &DatProvider,
                ia: DatHandle,
                active: &Side,
                passive: &Side,
            ) -> (*mut c_void, DatHandle, DatEvent) {
                let (mut qual, mut psp) = (0, 0);
                ok!(
                    table,
                    psp_create_any(ia, &mut qual, passive.conn, 0, &mut psp)
                );
                // SAFETY: all zeros are attributes, to be filled.
                let mut attr: DatIaAttr = unsafe { std::mem::zeroed() };
                ok!(
                    table,
                    ia_query(ia, null_mut(), !0, &mut attr, 0, null_mut())
                );
                let own = attr.ia_address_ptr;
                ok!(
                    table,
                    ep_connect(active.ep, own, qual, FIVE_SECONDS, 0, null(), 0, 0)
                );
                let arrived = wait(passive.conn, event_number::CONNECTION_REQUEST);
                (own, psp, arrived)
            }

            /// Waits for the completion with `cookie`, and returns its length.
            fn completed(s: &Side, cookie: u64) -> u64 {
                let event = wait(s.dto, event_number::DTO_COMPLETION);
                // SAFETY: the event says that it is a completion.
                let data = unsafe { event.event_data.dto_completion_event_data };
                let done = (data.ep_handle, data.user_cookie, data.status);
                assert_eq!(done, (s.ep, cookie, 0));
                u64::from(data.transfered_length)
            }

            /// A peer on the same link: without the scope its address leads nowhere.
            #[test]
            fn link_local_addresses_have_the_scope_of_their_ia_wherever_they_are_reported() {
                let _alone = alone();
                let (table, ia, _) = open_named("link");
                let mut pz = 0;
                ok!(table, pz_create(ia, &mut pz));
                let (active, passive) = (side(table, ia, pz, 1), side(table, ia, pz, 2));
                let (own, _, arrived) = ask(table, ia, &active, &passive);
                assert_ne!(scope(own), 0);
                // SAFETY: the event says that it is a request.
                let arrived = unsafe { arrived.event_data.cr_arrival_event_data };
                // SAFETY: all zeros are parameters, to be filled.
                let mut cr: DatCrParam = unsafe { std::mem::zeroed() };
                ok!(table, cr_query(arrived.cr_handle, 0x1f, &mut cr));
                // SAFETY: as above.
                let mut ep: DatEpParam = unsafe { std::mem::zeroed() };
                ok!(table, ep_query(active.ep, !0, &mut ep));
                let reported = [
                    arrived.local_ia_address_ptr,
                    cr.remote_ia_address_ptr,
                    ep.local_ia_address_ptr,
                    ep.remote_ia_address_ptr,
                ];
                assert_eq!(reported.map(|at| scope(at)), [scope(own); 4]);
                ok!(table, ia_close(ia, 0));
            }

            #[test]
            fn two_endpoints_connect_and_move_every_kind_of_message() {
                let _alone = alone();
                let (table, ia, _) = open();
                let mut pz = 0;
                ok!(table, pz_create(ia, &mut pz));
                let mut active = side(table, ia, pz, 1);
                let passive = side(table, ia, pz, 2);
                let (mut qual, mut psp) = (0, 0);
                ok!(
                    table,
                    psp_create_any(ia, &mut qual, passive.conn, 0, &mut psp)
                );

                // SAFETY: all zeros are attributes, to be filled.
                let mut attr: DatIaAttr = unsafe { std::mem::zeroed() };
                // SAFETY: as above.
                let mut provider: DatProviderAttr = unsafe { std::mem::zeroed() };
                ok!(
                    table,
                    ia_query(ia, null_mut(), !0, &mut attr, !0, &mut provider)
                );
                assert_eq!(provider.dapl_version_major, $major);
                assert!(provider.max_private_data_size > 0);

                let hello = *b"hello";
                ok!(
                    table,
                    ep_connect(
                        active.ep,
                        attr.ia_address_ptr,
                        qual,
                        FIVE_SECONDS,
                        5,
                        hello.as_ptr().cast(),
                        0,
                        0
                    )
                );
                let arrived = wait(passive.conn, event_number::CONNECTION_REQUEST);
                // SAFETY: the event says that it is a request.
                let arrived = unsafe { arrived.event_data.cr_arrival_event_data };
                assert_eq!((arrived.sp_handle, arrived.conn_qual), (psp, qual));
                // SAFETY: all zeros are parameters, to be filled.
                let mut param: DatCrParam = unsafe { std::mem::zeroed() };
                ok!(table, cr_query(arrived.cr_handle, 0x1f, &mut param));
                assert!(param.private_data_size >= 5);
                let at = param.private_data.cast::<u8>();
                // SAFETY: at least five bytes, which the consumer may change, as dtest does.
                let data = unsafe { std::slice::from_raw_parts_mut(at, 5) };
                assert_eq!(data, hello);
                data[0] = b'j';
                ok!(
                    table,
                    cr_accept(arrived.cr_handle, passive.ep, 5, param.private_data)
                );
                let up = wait(active.conn, ESTABLISHED);
                // SAFETY: the event says that it is a connection's.
                let up = unsafe { up.event_data.connect_event_data };
                assert_eq!(up.ep_handle, active.ep);
                assert!(up.private_data_size >= 5);
                // SAFETY: as many bytes as it says.
                let data = unsafe { std::slice::from_raw_parts(up.private_data.cast::<u8>(), 5) };
                assert_eq!(data, b"jello");
                wait(passive.conn, ESTABLISHED);

                let mut into = [
                    local(passive.at(), 800, passive.key),
                    local(passive.at() + 800, 800, passive.key),
                ];
                ok!(table, ep_post_recv(passive.ep, 2, into.as_mut_ptr(), 7, 0));
                let mut from = local(active.at(), 1000, active.key);
                ok!(table, ep_post_send(active.ep, 1, &mut from, u64::MAX, 0));
                assert_eq!(completed(&passive, 7), 1000);
                assert_eq!(completed(&active, u64::MAX), 1000);
                assert_eq!((passive.memory[124], passive.memory[125]), (1, 2));

                active.memory.fill(3);
                let there = remote(passive.at() + 2048, 80, passive.remote_key);
                let mut here = local(active.at(), 80, active.key);
                ok!(
                    table,
                    ep_post_rdma_write(active.ep, 1, &mut here, 8, &there, 0)
                );
                assert_eq!(completed(&active, 8), 80);
                assert_eq!((passive.memory[265], passive.memory[266]), (3, 2));
                let mut here = local(active.at() + 4000, 96, active.key);
                let there = remote(passive.at(), 96, passive.remote_key);
                ok!(
                    table,
                    ep_post_rdma_read(active.ep, 1, &mut here, 9, &there, 0)
                );
                assert_eq!(completed(&active, 9), 96);
                assert_eq!((active.memory[499], active.memory[500]), (3, 1));

                let (mut state, mut idle, mut other) = (0, 0, 0);
                ok!(
                    table,
                    ep_get_status(active.ep, &mut state, &mut idle, &mut other)
                );
                assert_eq!((state, idle, other), (9, 1, 1));
                // SAFETY: all zeros are parameters, to be filled.
                let mut param: DatEpParam = unsafe { std::mem::zeroed() };
                ok!(table, ep_query(active.ep, !0, &mut param));
                assert_eq!(
                    (param.ep_state, param.pz_handle, param.connect_evd_handle),
                    (9, pz, active.conn)
                );
                assert!(param.ep_attr.max_request_dtos > 0);

                let busy = call!(table, pz_free(pz));
                assert_eq!(busy & TYPE_MASK, INVALID_STATE);
                let busy = call!(table, ia_close(ia, 1));
                assert_eq!(busy & TYPE_MASK, INVALID_STATE);

                ok!(table, ep_disconnect(active.ep, 0));
                let end = wait(active.conn, DISCONNECTED);
                // SAFETY: the event says that it is a connection's.
                let end = unsafe { end.event_data.connect_event_data };
                assert_eq!(end.ep_handle, active.ep);
                assert_eq!(end.private_data_size, 0, "the peer's, of the accept");
                assert!(end.private_data.is_null());
                wait(passive.conn, DISCONNECTED);
                let feeding = call!(table, evd_free(passive.conn));
                assert_eq!(feeding & TYPE_MASK, INVALID_STATE);
                ok!(table, psp_free(psp));
                free_side(table, &active);
                free_side(table, &passive);
                ok!(table, pz_free(pz));
                ok!(table, ia_close(ia, 1));
            }

            /// 2.0 has the LMR before the range, and the type of the addresses before the endpoint.
            #[test]
            fn what_a_bind_refuses_has_the_number_of_its_argument() {
                let _alone = alone();
                let (table, ia, _) = open();
                let mut pz = 0;
                ok!(table, pz_create(ia, &mut pz));
                let own = side(table, ia, pz, 1);
                let mut rmr = 0;
                ok!(table, rmr_create(pz, &mut rmr));
                let bind = |range, rights, flags| {
                    normal(rmr_bind(table, rmr, own.lmr, &range, rights, own.ep, flags))
                };
                let (whole, nothing) = (local(own.at(), 64, own.key), local(0, 0, 0));
                let beyond = local(own.at() + 1, 4096, own.key);
                let [range, rights, flags] = BIND_ARGUMENTS.map(|number| Error::arg(number).code());
                assert_eq!(bind(beyond, 2, 0), range);
                assert_eq!(bind(whole, 0x1000, 0), rights);
                // The endpoint has no completions of that kind.
                assert_eq!(bind(whole, 2, UNSIGNALLED), flags);
                assert_eq!(bind(nothing, 0, UNSIGNALLED), flags);
                ok!(table, rmr_free(rmr));
                free_side(table, &own);
                ok!(table, pz_free(pz));
                ok!(table, ia_close(ia, 1));
            }

            #[test]
            fn the_peer_gets_an_event_for_a_reject() {
                let _alone = alone();
                let (table, ia, _) = open();
                let mut pz = 0;
                ok!(table, pz_create(ia, &mut pz));
                let (active, passive) = (side(table, ia, pz, 0), side(table, ia, pz, 0));
                let (_, psp, arrived) = ask(table, ia, &active, &passive);
                // SAFETY: the event says that it is a request.
                let cr = unsafe { arrived.event_data.cr_arrival_event_data.cr_handle };
                assert_eq!(normal(cr_reject(table, cr)), 0);
                wait(active.conn, 0x4002);
                let gone = normal(cr_reject(table, cr));
                assert_eq!(gone & TYPE_MASK, INVALID_HANDLE);
                ok!(table, ia_close(ia, 0));
                for handle in [active.ep, passive.conn, psp, pz] {
                    let mut kind = 0;
                    let dead = call!(table, get_handle_type(handle, &mut kind));
                    assert_eq!(dead & TYPE_MASK, INVALID_HANDLE);
                }
            }

            #[test]
            fn software_events_and_the_odd_codes_of_an_empty_queue() {
                let _alone = alone();
                let (table, ia, _) = open();
                let (mut soft, mut dto) = (0, 0);
                ok!(table, evd_create(ia, 4, 0, 0x1, &mut soft));
                ok!(table, evd_create(ia, 4, 0, EVD_DTO, &mut dto));
                let mut got = event();
                assert_eq!(call!(table, evd_dequeue(soft, &mut got)), 0x800d_0000);
                assert_eq!(call!(table, evd_dequeue(dto, &mut got)), 0x000d_0000);
                let mut post = event();
                post.event_number = event_number::SOFTWARE;
                post.event_data.software_event_data.pointer = 0x1234;
                ok!(table, evd_post_se(soft, &post));
                ok!(table, evd_dequeue(soft, &mut got));
                // SAFETY: the event says that it is one.
                let pointer = unsafe { got.event_data.software_event_data.pointer };
                assert_eq!(
                    (got.event_number, pointer),
                    (event_number::SOFTWARE, 0x1234)
                );
                let mut more = -1;
                let late = call!(table, evd_wait(soft, 1000, 1, &mut got, &mut more));
                assert_eq!((late, more), (0x800f_0000, 0));
                ok!(table, ia_close(ia, 0));
            }

            #[test]
            fn contexts_types_and_shared_receives() {
                let _alone = alone();
                let (table, ia, evd) = open();
                let (mut pz, mut srq, mut cno) = (0, 0, 0);
                ok!(table, pz_create(ia, &mut pz));
                let mut wanted = DatSrqAttr {
                    max_recv_dtos: 10,
                    max_recv_iov: 2,
                    low_watermark: 0,
                };
                ok!(table, srq_create(ia, pz, &mut wanted, &mut srq));
                let nobody = DatOsWaitProxyAgent {
                    instance_data: null_mut(),
                    proxy_agent_func: None,
                };
                ok!(table, cno_create(ia, nobody, &mut cno));
                for (handle, expected) in [
                    (ia, handle_type::IA),
                    (evd, handle_type::EVD),
                    (pz, handle_type::PZ),
                    (srq, handle_type::SRQ),
                    (cno, handle_type::CNO),
                ] {
                    let (mut kind, mut context) = (!0, 0);
                    ok!(table, get_handle_type(handle, &mut kind));
                    assert_eq!(kind, expected);
                    ok!(table, set_consumer_context(handle, 0xdead_beef_0000_0001));
                    ok!(table, get_consumer_context(handle, &mut context));
                    assert_eq!(context, 0xdead_beef_0000_0001);
                }
                // SAFETY: all zeros are parameters, to be filled.
                let mut param: DatSrqParam = unsafe { std::mem::zeroed() };
                ok!(table, srq_query(srq, 0xff, &mut param));
                let told = (param.ia_handle, param.pz_handle, param.srq_state);
                assert_eq!(told, (ia, pz, SRQ_OPERATIONAL));
                assert!(param.max_recv_dtos >= 10);
                let mut memory = [0u64; 8];
                let mut segment = local(memory.as_mut_ptr() as u64, 64, 0);
                assert_eq!(
                    call!(table, srq_post_recv(srq, -1, &mut segment, 1)),
                    0x8006_0026
                );
                assert_eq!(
                    call!(table, srq_post_recv(srq, 1, null_mut(), 1)),
                    0x8006_0027
                );
                // SAFETY: all zeros are parameters, to be filled.
                let mut param: DatEvdParam = unsafe { std::mem::zeroed() };
                ok!(table, evd_query(evd, 0x1f, &mut param));
                assert_eq!((param.ia_handle, param.evd_flags), (ia, 0x100));
                ok!(table, ia_close(ia, 0));
            }

            /// Calls all slots whose first argument is a handle, with NULL or zero for the others. Returns their names and codes.
            fn refused(table: &DatProvider, bad: DatHandle) -> Vec<(&'static str, u32)> {
                let nobody = DatOsWaitProxyAgent {
                    instance_data: null_mut(),
                    proxy_agent_func: None,
                };
                let mut list = Vec::new();
                macro_rules! with {
                            ($slot:ident $arguments:tt) => {
                                list.push((stringify!($slot), call!(table, $slot $arguments)))
                            };
                        }
                with!(ia_query(bad, null_mut(), 0, null_mut(), 0, null_mut()));
                with!(ia_close(bad, 0));
                with!(set_consumer_context(bad, 0));
                with!(get_consumer_context(bad, null_mut()));
                with!(get_handle_type(bad, null_mut()));
                with!(cno_create(bad, nobody, null_mut()));
                with!(cno_modify_agent(bad, nobody));
                with!(cno_query(bad, 0, null_mut()));
                with!(cno_free(bad));
                with!(cno_wait(bad, 0, null_mut()));
                with!(cr_query(bad, 0, null_mut()));
                with!(cr_accept(bad, 0, 0, null::<c_void>()));
                with!(cr_handoff(bad, 0));
                with!(evd_create(bad, 0, 0, 0, null_mut()));
                with!(evd_query(bad, 0, null_mut()));
                with!(evd_modify_cno(bad, 0));
                with!(evd_enable(bad));
                with!(evd_disable(bad));
                with!(evd_wait(bad, 0, 0, null_mut(), null_mut()));
                with!(evd_resize(bad, 0));
                with!(evd_post_se(bad, null()));
                with!(evd_dequeue(bad, null_mut()));
                with!(evd_free(bad));
                with!(ep_create(bad, 0, 0, 0, 0, null(), null_mut()));
                with!(ep_query(bad, 0, null_mut()));
                with!(ep_modify(bad, 0, null()));
                with!(ep_connect(bad, null_mut(), 0, 0, 0, null(), 0, 0));
                with!(ep_dup_connect(bad, 0, 0, 0, null(), 0));
                with!(ep_disconnect(bad, 0));
                with!(ep_post_send(bad, 0, null_mut(), 0, 0));
                with!(ep_post_recv(bad, 0, null_mut(), 0, 0));
                with!(ep_post_rdma_read(bad, 0, null_mut(), 0, null(), 0));
                with!(ep_post_rdma_write(bad, 0, null_mut(), 0, null(), 0));
                with!(ep_get_status(bad, null_mut(), null_mut(), null_mut()));
                with!(ep_free(bad));
                with!(lmr_query(bad, 0, null_mut()));
                with!(lmr_free(bad));
                with!(rmr_create(bad, null_mut()));
                with!(rmr_query(bad, 0, null_mut()));
                with!(rmr_free(bad));
                with!(psp_create(bad, 0, 0, 0, null_mut()));
                with!(psp_query(bad, 0, null_mut()));
                with!(psp_free(bad));
                with!(rsp_create(bad, 0, 0, 0, null_mut()));
                with!(rsp_query(bad, 0, null_mut()));
                with!(rsp_free(bad));
                with!(pz_create(bad, null_mut()));
                with!(pz_query(bad, 0, null_mut()));
                with!(pz_free(bad));
                with!(psp_create_any(bad, null_mut(), 0, 0, null_mut()));
                with!(ep_reset(bad));
                with!(evd_set_unwaitable(bad));
                with!(evd_clear_unwaitable(bad));
                with!(lmr_sync_rdma_read(bad, null(), 0));
                with!(lmr_sync_rdma_write(bad, null(), 0));
                with!(ep_create_with_srq(bad, 0, 0, 0, 0, 0, null(), null_mut()));
                with!(ep_recv_query(bad, null_mut(), null_mut()));
                with!(ep_set_watermark(bad, 0, 0));
                with!(srq_create(bad, 0, null_mut(), null_mut()));
                with!(srq_free(bad));
                with!(srq_post_recv(bad, 0, null_mut(), 0));
                with!(srq_query(bad, 0, null_mut()));
                with!(srq_resize(bad, 0));
                with!(srq_set_lw(bad, 0));
                list.push(("cr_reject", normal(cr_reject(table, bad))));
                list
            }

            #[test]
            fn every_slot_refuses_invalid_handles() {
                let _alone = alone();
                let (table, ia, _) = open();
                let mut dead = 0;
                ok!(table, pz_create(ia, &mut dead));
                ok!(table, pz_free(dead));
                let mut pz = 0;
                ok!(table, pz_create(ia, &mut pz));
                let (_, closed, closed_evd) = open();
                ok!(table, ia_close(closed, 0));
                let local = 0u64;
                let mine = std::ptr::from_ref(&local) as usize;
                for bad in [
                    0,
                    1,
                    2,
                    3,
                    4096,
                    mine,
                    dead,
                    closed,
                    closed_evd,
                    ia + 1,
                    ia + 8,
                    ia + 64,
                    pz + 8,
                    !0,
                    !7,
                ] {
                    for (slot, code) in refused(table, bad) {
                        assert_eq!(
                            code & TYPE_MASK,
                            INVALID_HANDLE,
                            "{slot}({bad:#x}) = {code:#x}"
                        );
                    }
                }
                // A handle of another kind: only slots for PZs and for handles of any kind accept it.
                let fit = [
                    "pz_query",
                    "pz_free",
                    "rmr_create",
                    "set_consumer_context",
                    "get_consumer_context",
                    "get_handle_type",
                ];
                for (slot, code) in refused(table, pz) {
                    if !fit.contains(&slot) {
                        assert_eq!(code & TYPE_MASK, INVALID_HANDLE, "{slot}(a PZ) = {code:#x}");
                    }
                }
                ok!(table, ia_close(ia, 0));
            }

            #[test]
            fn frees_and_reuse_from_several_threads() {
                let _alone = alone();
                let (table, ia, _) = open();
                let mut pz = 0;
                ok!(table, pz_create(ia, &mut pz));
                std::thread::scope(|threads| {
                    for _ in 0..4 {
                        threads.spawn(|| {
                            let mut stale = Vec::new();
                            for _ in 0..if cfg!(miri) { 5 } else { 300 } {
                                let s = side(table, ia, pz, 0);
                                free_side(table, &s);
                                stale.extend([s.ep, s.lmr, s.dto, s.conn]);
                                // The address of a stale handle may belong to a new object now; the call must not crash.
                                let old = stale[stale.len() / 2];
                                let mut kind = 0;
                                let code = call!(table, get_handle_type(old, &mut kind));
                                assert!(code == 0 || code & TYPE_MASK == INVALID_HANDLE);
                            }
                        });
                    }
                    // Of two concurrent frees one succeeds.
                    for _ in 0..if cfg!(miri) { 3 } else { 200 } {
                        let mut evd = 0;
                        ok!(table, evd_create(ia, 4, 0, 0x1, &mut evd));
                        let codes: Vec<u32> = std::thread::scope(|two| {
                            let frees = [0, 1].map(|_| two.spawn(|| call!(table, evd_free(evd))));
                            frees.into_iter().map(|f| f.join().unwrap()).collect()
                        });
                        // The other four threads create EVDs too, so that the second free may find a new object.
                        assert!(codes.contains(&0), "{codes:x?}");
                    }
                });
                ok!(table, ia_close(ia, 0));
            }
        }
    };
}

/// Calls whose parameters differ, for 2.0.
mod own_2_0 {
    use super::*;
    use dat_abi::v2_0::table::DatProvider;
    use dat_abi::v2_0::types::{DatLmrTriplet, DatRmrTriplet};

    pub(crate) const SRQ_OPERATIONAL: u32 = 1;
    /// Numbers of the arguments of dat_rmr_bind: range, privileges, flags.
    pub(crate) const BIND_ARGUMENTS: [u16; 3] = [3, 4, 8];

    pub(crate) fn same(code: u32) -> u32 {
        code
    }

    pub(crate) fn local(virtual_address: u64, length: u32, lmr_context: u32) -> DatLmrTriplet {
        DatLmrTriplet {
            virtual_address,
            segment_length: length,
            lmr_context,
        }
    }

    pub(crate) fn remote(virtual_address: u64, length: u32, rmr_context: u32) -> DatRmrTriplet {
        DatRmrTriplet {
            virtual_address,
            segment_length: length,
            rmr_context,
        }
    }

    #[allow(clippy::too_many_arguments, reason = "dat_lmr_create has as many")]
    pub(crate) fn lmr_create(
        table: &DatProvider,
        ia: DatHandle,
        region: DatRegionDescription,
        length: u64,
        pz: DatHandle,
        lmr: &mut DatHandle,
        key: &mut u32,
        remote_key: &mut u32,
        size: &mut u64,
        start: &mut u64,
    ) -> u32 {
        let slot = table.lmr_create.unwrap();
        // SAFETY: pointers are valid.
        unsafe {
            slot(
                ia, 0, region, length, pz, PRIV_ALL, 0, lmr, key, remote_key, size, start,
            )
        }
    }

    pub(crate) fn rmr_bind(
        table: &DatProvider,
        rmr: DatHandle,
        lmr: DatHandle,
        range: &DatLmrTriplet,
        rights: u32,
        ep: DatHandle,
        flags: u32,
    ) -> u32 {
        let (slot, mut context) = (table.rmr_bind.unwrap(), 0);
        // SAFETY: pointers are valid.
        unsafe { slot(rmr, lmr, range, rights, 0, ep, 1, flags, &mut context) }
    }

    pub(crate) fn cr_reject(table: &DatProvider, cr: DatHandle) -> u32 {
        // SAFETY: no pointer but NULL.
        unsafe { table.cr_reject.unwrap()(cr, 0, null()) }
    }
}

/// Calls whose parameters differ, for 1.2.
mod own_1_2 {
    use super::*;
    use dat_abi::v1_2::table::DatProvider;
    use dat_abi::v1_2::types::{DatLmrTriplet, DatRmrTriplet};

    pub(crate) const SRQ_OPERATIONAL: u32 = 0;
    /// Numbers of the arguments of dat_rmr_bind: range, privileges, flags.
    pub(crate) const BIND_ARGUMENTS: [u16; 3] = [2, 3, 6];

    pub(crate) fn local(virtual_address: u64, length: u32, lmr_context: u32) -> DatLmrTriplet {
        DatLmrTriplet {
            lmr_context,
            pad: 0x5555_5555,
            virtual_address,
            segment_length: length.into(),
        }
    }

    pub(crate) fn remote(target_address: u64, length: u32, rmr_context: u32) -> DatRmrTriplet {
        DatRmrTriplet {
            rmr_context,
            pad: 0x5555_5555,
            target_address,
            segment_length: length.into(),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "dat_lmr_create has as many")]
    pub(crate) fn lmr_create(
        table: &DatProvider,
        ia: DatHandle,
        region: DatRegionDescription,
        length: u64,
        pz: DatHandle,
        lmr: &mut DatHandle,
        key: &mut u32,
        remote_key: &mut u32,
        size: &mut u64,
        start: &mut u64,
    ) -> u32 {
        let slot = table.lmr_create.unwrap();
        // SAFETY: pointers are valid.
        unsafe {
            slot(
                ia, 0, region, length, pz, PRIV_ALL, lmr, key, remote_key, size, start,
            )
        }
    }

    pub(crate) fn rmr_bind(
        table: &DatProvider,
        rmr: DatHandle,
        _lmr: DatHandle,
        range: &DatLmrTriplet,
        rights: u32,
        ep: DatHandle,
        flags: u32,
    ) -> u32 {
        let (slot, mut context) = (table.rmr_bind.unwrap(), 0);
        // SAFETY: pointers are valid.
        unsafe { slot(rmr, range, rights, ep, 1, flags, &mut context) }
    }

    pub(crate) fn cr_reject(table: &DatProvider, cr: DatHandle) -> u32 {
        // SAFETY: no pointer.
        unsafe { table.cr_reject.unwrap()(cr) }
    }
}

version!(v2_0, 2, super::own_2_0::same, super::own_2_0);
version!(v1_2, 1, super::from_v1_2, super::own_1_2);
