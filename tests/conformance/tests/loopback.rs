//! Runs the statements, the storm and the random calls on the loopback.

use std::ffi::{CString, c_void};

use dat_abi::types::DatProviderInfo;
use dat_conformance::matrix::{self, Provider};
use dat_conformance::{Api, Dat, STATEMENTS, Table, Verdict, fuzz, judge, storm};
use dat_loopback::Loopback;

/// A registry that accepts every provider; the test has the table already.
unsafe extern "C" fn registered(_table: *const c_void, _info: *const DatProviderInfo) -> u32 {
    0
}

/// Creates an adapter for one test: service points of different tests do not meet.
fn loopback(name: &str, params: &str, api: Api) -> Dat {
    let (major, minor) = api.version();
    let info = DatProviderInfo::new(name, major, minor, true);
    let params = CString::new(params).unwrap();
    // SAFETY: a valid entry, a C string, and a function that registers.
    unsafe {
        dat_abi::export::init::<Loopback>(&raw const info, params.as_ptr(), Some(registered));
    };
    let table = match api {
        Api::V1_2 => Table::from(dat_abi::v1_2::tables::provider_table::<Loopback>()),
        Api::V2_0 => Table::from(dat_abi::v2_0::tables::provider_table::<Loopback>()),
    };
    Dat::new(table, name)
}

fn is_as_declared(api: Api, params: &str) {
    let dat = loopback("declared", params, api);
    let wrong = matrix::put(&dat, Provider::Loopback);
    assert!(wrong.is_empty(), "uDAPL {api}:\n{}", wrong.join("\n"));
}

#[test]
fn in_1_2_it_does_what_the_matrix_says() {
    is_as_declared(Api::V1_2, "127.0.4.1");
}

#[test]
fn in_2_0_it_does_what_the_matrix_says() {
    is_as_declared(Api::V2_0, "127.0.4.2");
}

#[test]
fn handles_are_freed_and_reused_by_several_threads() {
    for api in Api::ALL {
        storm(&loopback("storm", "127.0.4.20", api), 3, 60).unwrap();
    }
}

#[test]
fn random_calls_do_no_harm() {
    for api in Api::ALL {
        let dat = loopback("fuzz", "127.0.4.21", api);
        for seed in 0..4 {
            let succeeded = fuzz(&dat, seed, 10_000).unwrap();
            assert!(
                succeeded > 500,
                "only {succeeded} calls succeeded; expected more than 500"
            );
        }
    }
}

#[test]
fn random_calls_in_parallel_do_no_harm() {
    let dat = loopback("fuzz-parallel", "127.0.4.22", Api::V2_0);
    std::thread::scope(|scope| {
        for seed in 100..103 {
            let dat = &dat;
            scope.spawn(move || fuzz(dat, seed, 10_000).unwrap());
        }
    });
}

#[test]
fn a_provider_that_fails_is_found_out() {
    let lazy = loopback("fail-wire", "127.0.4.23 0 fail=wire", Api::V2_0);
    let broken = STATEMENTS
        .iter()
        .copied()
        .flatten()
        .filter(|s| s.page == "dat_ep_post_send" || s.page == "dat_ep_post_rdma_write")
        .filter(|s| matches!(judge(s, &lazy), Err(Verdict::Broken(_))))
        .count();
    assert!(
        broken >= 4,
        "only {broken} statements failed; expected 4 or more"
    );
}
