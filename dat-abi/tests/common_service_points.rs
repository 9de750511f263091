//! Addresses of common service points through the C table of 2.0, over the loopback transport.
#![allow(missing_docs, reason = "a test")]

use std::ffi::c_void;
use std::net::SocketAddr;

use dat_abi::sockaddr;
use dat_abi::types::{DAT_HANDLE_NULL, DatProviderInfo};
use dat_abi::v2_0::table::DatProvider;
use dat_abi::v2_0::tables::provider_table;
use dat_abi::v2_0::types::{DatComm, DatCspParam};
use dat_loopback::Loopback;

const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const EVD_CR: u32 = 0x10;
const SUCCESS: u32 = 0;
const TYPE: u32 = 0x3fff_0000;
const INVALID_ADDRESS: u32 = 0x0012_0000;

/// Registers a table: does nothing.
unsafe extern "C" fn add(_table: *const c_void, _info: *const DatProviderInfo) -> u32 {
    0
}

/// What bind(2) takes for the socket that `comm` describes, and what dat_csp_query returns then.
#[test]
fn the_address_of_a_service_point_has_the_family_that_its_comm_names() {
    let info = DatProviderInfo::new("loop", 2, 0, false);
    // SAFETY: a valid info, a C string, and a function of that type.
    unsafe { dat_abi::export::init::<Loopback>(&info, c"127.0.0.1 0".as_ptr(), Some(add)) };
    let (mut ia, mut async_evd, mut evd) = (0, DAT_HANDLE_NULL, 0);
    let open = provider_table::<Loopback>().ia_open.unwrap();
    // SAFETY: pointers are valid for the call.
    let code = unsafe { open(c"loop".as_ptr(), 8, &raw mut async_evd, &raw mut ia) };
    assert_eq!(code, SUCCESS);
    // SAFETY: the first word of every handle points to its table.
    let table: &DatProvider = unsafe { &**(ia as *const *const DatProvider) };
    let create = table.evd_create.unwrap();
    // SAFETY: pointers are valid for the call.
    let code = unsafe { create(ia, 8, DAT_HANDLE_NULL, EVD_CR, &raw mut evd) };
    assert_eq!(code, SUCCESS);

    for (domain, at, expected) in [
        (AF_INET, "127.0.0.1:0", SUCCESS),
        (AF_INET, "0.0.0.0:0", SUCCESS),
        (AF_INET6, "[::ffff:127.0.0.1]:0", SUCCESS),
        (AF_INET6, "[::ffff:0.0.0.0]:0", SUCCESS),
        (AF_INET6, "[::]:0", SUCCESS),
        (AF_INET6, "127.0.0.1:0", INVALID_ADDRESS),
        (AF_INET, "[::ffff:127.0.0.1]:0", INVALID_ADDRESS),
        (AF_INET, "[::]:0", INVALID_ADDRESS),
        (AF_INET6, "[::ffff:127.0.0.2]:0", INVALID_ADDRESS),
        (AF_INET6, "[::1]:0", INVALID_ADDRESS),
    ] {
        let ip = at.parse::<SocketAddr>().unwrap().ip();
        let mut comm = DatComm {
            domain,
            r#type: 1,
            protocol: 6,
        };
        let mut address = sockaddr::c_address(Some(ip), 0, 0);
        let mut csp = 0;
        let create = table.csp_create.unwrap();
        let address = address.as_mut_ptr().cast();
        // SAFETY: pointers are valid for the call.
        let code = unsafe { create(ia, &raw mut comm, address, evd, &raw mut csp) };
        assert_eq!(code & TYPE, expected, "{domain} {at}");
        if code != SUCCESS {
            continue;
        }
        // SAFETY: all zeros are parameters, to be filled.
        let mut param: DatCspParam = unsafe { std::mem::zeroed() };
        // SAFETY: pointers are valid for the call.
        let code = unsafe { table.csp_query.unwrap()(csp, !0, &raw mut param) };
        assert_eq!(code, SUCCESS);
        // SAFETY: both point to what the query returned, which stays valid.
        let (of_comm, of_address) = unsafe {
            (
                (*param.comm).domain,
                sockaddr::read(param.address_ptr.cast()),
            )
        };
        assert_eq!(of_comm, domain, "{at}");
        assert_eq!(of_address.unwrap().ip(), ip, "{at}");
        // SAFETY: a live handle.
        assert_eq!(unsafe { table.csp_free.unwrap()(csp) }, SUCCESS);
    }
    // SAFETY: a live handle.
    assert_eq!(unsafe { table.ia_close.unwrap()(ia, 0) }, SUCCESS);
}
