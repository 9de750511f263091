//! Invalid input through both tables: each argument invalid at a time, and random words; on the loopback and on
//! softrxe's user engine.

use std::ffi::CString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use dat_abi::types::DatProviderInfo;
use dat_conformance::raw::{self, Plan, Target, World};
use dat_conformance::{Api, Table, Verdict, host};
use dat_loopback::Loopback;

/// Opens an adapter of the loopback, one for each test.
fn loopback(name: &str, params: &str, api: Api) -> Target {
    let (major, minor) = api.version();
    let info = DatProviderInfo::new(name, major, minor, true);
    let params = CString::new(params).expect("no 0");
    // SAFETY: a valid entry, a C string, and a function that registers.
    unsafe {
        let add = Some(host::add_provider as dat_abi::export::RegistryFn);
        dat_abi::export::init::<Loopback>(&raw const info, params.as_ptr(), add);
    };
    let opener = match api {
        Api::V1_2 => Table::from(dat_abi::v1_2::tables::provider_table::<Loopback>()),
        Api::V2_0 => Table::from(dat_abi::v2_0::tables::provider_table::<Loopback>()),
    };
    let name = CString::new(name).expect("no 0");
    Target { opener, name }
}

/// Returns the path of the softrxe provider that cargo built.
fn library() -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(dat_tests::softrxe);
    BUILT.clone()
}

fn user_engine(address: &str, api: Api) -> Target {
    let params = format!("{address} 0 engine=user");
    let opener = host::load(&library(), address, &params, api).expect("the provider loads");
    let name = CString::new(address).expect("no 0");
    Target { opener, name }
}

fn each_wrong_argument(target: &Target) {
    let api = target.opener.api();
    match raw::invalid_arguments(target) {
        Ok(calls) => assert!(calls > 1800, "only {calls} calls"),
        Err(Verdict::Broken(why) | Verdict::Lacks(why)) => panic!("uDAPL {api}: {why}"),
    }
}

#[test]
fn each_wrong_argument_gets_its_code_from_the_loopback() {
    for api in Api::ALL {
        each_wrong_argument(&loopback("wrong", "127.0.4.24", api));
    }
}

#[test]
fn each_wrong_argument_gets_its_code_from_the_user_engine() {
    for api in Api::ALL {
        each_wrong_argument(&user_engine("127.0.4.30", api));
    }
}

fn random_words(target: &Target, foreign: &[usize]) {
    for threads in [1, 3] {
        let plan = Plan::of_environment(threads);
        println!("uDAPL {}: {plan:?}", target.opener.api());
        let tally = raw::fuzz(target, foreign, plan).unwrap();
        println!("{tally:?}");
        assert!(tally.functions > 30, "{tally:?}");
    }
}

#[test]
fn random_words_do_the_loopback_no_harm() {
    for api in Api::ALL {
        random_words(&loopback("words", "127.0.4.25", api), &[]);
    }
}

/// Handles of the loopback are foreign there.
#[test]
fn random_words_do_the_user_engine_no_harm() {
    let foreign_world = World::open(&loopback("foreign_world", "127.0.4.33", Api::V2_0));
    let foreign = foreign_world
        .as_ref()
        .expect("the loopback opens")
        .handles();
    for api in Api::ALL {
        random_words(&user_engine("127.0.4.31", api), &foreign);
    }
}

fn races(target: &Target) {
    let api = target.opener.api();
    let ended = raw::two_ends(target, 15).and_then(|()| raw::close_under_way(target, 12));
    match ended {
        Ok(called) => assert!(called > 0, "uDAPL {api}: no agent was called"),
        Err(why) => panic!("uDAPL {api}: {why:?}"),
    }
}

#[test]
fn two_ends_at_once_and_closing_under_way_on_the_loopback() {
    for api in Api::ALL {
        races(&loopback("races", "127.0.4.26", api));
    }
}

#[test]
fn two_ends_at_once_and_closing_under_way_on_the_user_engine() {
    for api in Api::ALL {
        races(&user_engine("127.0.4.34", api));
    }
}

/// Runs the test of endpoints ended during connection setup. A busy machine accepts few requests.
fn endings(target: &Target) {
    let api = target.opener.api();
    match raw::ends_during_connect(target) {
        Ok(accepted) => assert!(accepted > 5, "uDAPL {api}: only {accepted} accepted"),
        Err(why) => panic!("uDAPL {api}: {why:?}"),
    }
}

#[test]
fn endpoints_end_while_they_are_connected_on_the_loopback() {
    for api in Api::ALL {
        endings(&loopback("endings", "127.0.4.36", api));
    }
}

#[test]
fn endpoints_end_while_they_are_connected_on_the_user_engine() {
    for api in Api::ALL {
        endings(&user_engine("127.0.4.37", api));
    }
}

/// Runs checks of faults that DAPL has even with valid input, see docs/faults.md.
fn faults(target: &Target) {
    let api = target.opener.api();
    raw::every_field_is_filled(target).unwrap_or_else(|why| panic!("uDAPL {api}: {why:?}"));
    raw::connection_storm(target, 64).unwrap_or_else(|why| panic!("uDAPL {api}: {why:?}"));
    let shortest = raw::shortest_disconnect(target, 10).expect("it disconnects");
    assert!(
        shortest < 5_000,
        "dat_ep_disconnect took {shortest} us at least"
    );
}

#[test]
fn structures_are_filled_connections_storm_and_disconnects_are_short_on_the_loopback() {
    for api in Api::ALL {
        faults(&loopback("faults", "127.0.4.27", api));
    }
}

#[test]
fn structures_are_filled_connections_storm_and_disconnects_are_short_on_the_user_engine() {
    for api in Api::ALL {
        faults(&user_engine("127.0.4.35", api));
    }
}

/// Runs in its own process, whose descriptors and threads it counts.
#[test]
fn random_words_leave_no_descriptor_and_no_thread() {
    for api in Api::ALL {
        let said = Command::new(env!("CARGO_BIN_EXE_dat-conformance"))
            .arg(library())
            .args(["left", "127.0.4.32 0 engine=user"])
            .args(["--api", &api.to_string(), "--random", "1"])
            .output()
            .expect("dat-conformance runs");
        let (out, err) = (
            String::from_utf8_lossy(&said.stdout),
            String::from_utf8_lossy(&said.stderr),
        );
        assert!(
            said.status.success() && out.contains("nothing is left over"),
            "uDAPL {api}: {out}{err}"
        );
    }
}
