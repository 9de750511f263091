//! Runs the statements on softrxe's user engine: RoCEv2 between two IAs of this process, through shared memory and over UDP, and with
//! endpoints in several lanes.

use dat_conformance::matrix::{self, Provider};
use dat_conformance::suite::Subject;
use dat_conformance::{Api, Dat, host, revoke};

/// The engine's parameters for connections through shared memory, and over UDP.
fn params(address: &str, near: &str) -> String {
    format!("{address} 0 engine=user near={near}")
}

fn is_as_declared(api: Api, address: &str, near: &str) {
    let _alone = dat_tests::alone();
    let subject = Subject {
        library: dat_tests::softrxe(),
        name: "user".into(),
        params: params(address, near),
        api,
    };
    let table = host::load(&subject.library, &subject.name, &subject.params, api)
        .expect("the provider registers");
    let program = [
        env!("CARGO_BIN_EXE_dat-conformance").to_owned(),
        "--test-process".to_owned(),
    ];
    let dat = Dat::new(table, "user").with_launcher(subject.launcher(&program));
    let wrong = matrix::put(&dat, Provider::User);
    assert!(wrong.is_empty(), "uDAPL {api}:\n{}", wrong.join("\n"));
}

#[test]
fn in_1_2_it_does_what_the_matrix_says() {
    is_as_declared(Api::V1_2, "127.0.5.1", "auto");
}

#[test]
fn in_1_2_over_udp_it_does_what_the_matrix_says() {
    is_as_declared(Api::V1_2, "127.0.5.4", "off");
}

#[test]
fn in_2_0_it_does_what_the_matrix_says() {
    is_as_declared(Api::V2_0, "127.0.5.2", "auto");
}

#[test]
fn in_2_0_over_udp_it_does_what_the_matrix_says() {
    is_as_declared(Api::V2_0, "127.0.5.5", "off");
}

#[test]
fn in_2_0_with_several_lanes_it_does_what_the_matrix_says() {
    is_as_declared(Api::V2_0, "127.0.5.7", "auto lanes=3");
}

fn revoked_while_a_peer_writes(address: &str, near: &str) {
    let _alone = dat_tests::alone();
    let params = params(address, near);
    let table = host::load(&dat_tests::softrxe(), "user", &params, Api::V2_0);
    let dat = Dat::new(table.expect("the provider registers"), "user");
    revoke(&dat, 4).unwrap();
}

#[test]
fn a_peer_that_writes_without_pause_touches_nothing_once_the_right_is_gone() {
    revoked_while_a_peer_writes("127.0.5.3", "auto");
}

#[test]
fn with_several_lanes_it_touches_nothing_either() {
    revoked_while_a_peer_writes("127.0.5.8", "auto lanes=3");
}

#[test]
fn over_udp_it_touches_nothing_either() {
    revoked_while_a_peer_writes("127.0.5.6", "off");
}
