//! Runs the statements on softrxe's user engine: RoCEv2 over UDP between two IAs of this process.

use dat_conformance::matrix::{self, Provider};
use dat_conformance::{Api, Dat, host, revoke};

fn is_as_declared(api: Api, address: &str) {
    let params = format!("{address} 0 engine=user");
    let table =
        host::load(&dat_tests::softrxe(), "user", &params, api).expect("the provider registers");
    let wrong = matrix::put(&Dat::new(table, "user"), Provider::User);
    assert!(wrong.is_empty(), "uDAPL {api}:\n{}", wrong.join("\n"));
}

#[test]
fn in_1_2_it_does_what_the_matrix_says() {
    is_as_declared(Api::V1_2, "127.0.5.1");
}

#[test]
fn in_2_0_it_does_what_the_matrix_says() {
    is_as_declared(Api::V2_0, "127.0.5.2");
}

#[test]
fn a_peer_that_writes_without_pause_touches_nothing_once_the_right_is_gone() {
    let address = "127.0.5.3";
    let params = format!("{address} 0 engine=user");
    let table = host::load(&dat_tests::softrxe(), "user", &params, Api::V2_0);
    let dat = Dat::new(table.expect("the provider registers"), "user");
    revoke(&dat, 4).unwrap();
}
