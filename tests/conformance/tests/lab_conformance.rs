//! Runs the statements on real rdma_rxe (`make lab-test`): both providers, both versions.

use std::ffi::CString;
use std::path::PathBuf;

use dat_conformance::matrix::{self, Provider};
use dat_conformance::raw::{self, Target};
use dat_conformance::suite::Subject;
use dat_conformance::{Api, Dat, Table, host};

/// Returns a provider of `target/dist`, relative to this test: `target/debug/deps/NAME`.
fn library(file: &str) -> PathBuf {
    let here = std::env::current_exe().expect("this test has a path");
    let target = here.ancestors().nth(3).expect("target");
    let library = target.join("dist/lib").join(file);
    assert!(
        library.exists(),
        "run make dist first: there is no {}",
        library.display()
    );
    library
}

fn subject(provider: Provider, api: Api) -> Subject {
    let (file, params) = match provider {
        Provider::Ibverbs => ("libdat-provider-ibverbs.so.2", "v0 0"),
        _ => ("libdat-provider-softrxe.so.2", "v0 0 engine=kernel"),
    };
    Subject {
        library: library(file),
        name: "rxe".into(),
        params: params.into(),
        api,
    }
}

fn table(subject: &Subject) -> Table {
    host::load(
        &subject.library,
        &subject.name,
        &subject.params,
        subject.api,
    )
    .expect("the provider registers")
}

fn is_as_declared(provider: Provider, api: Api) {
    let subject = subject(provider, api);
    let program = [
        env!("CARGO_BIN_EXE_dat-conformance").to_owned(),
        "--test-process".to_owned(),
    ];
    let dat = Dat::new(table(&subject), "rxe");
    // 1,000 connections take minutes under emulation.
    let dat = dat.with_launcher(subject.launcher(&program)).with_load(40);
    let wrong = matrix::put(&dat, provider);
    assert!(wrong.is_empty(), "uDAPL {api}:\n{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn ibverbs_does_what_the_matrix_says_in_1_2() {
    is_as_declared(Provider::Ibverbs, Api::V1_2);
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn ibverbs_does_what_the_matrix_says_in_2_0() {
    is_as_declared(Provider::Ibverbs, Api::V2_0);
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn the_kernel_engine_does_what_the_matrix_says_in_1_2() {
    is_as_declared(Provider::Kernel, Api::V1_2);
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn the_kernel_engine_does_what_the_matrix_says_in_2_0() {
    is_as_declared(Provider::Kernel, Api::V2_0);
}

/// One provider and version suffice: both providers share the transport, both versions the core.
#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn endpoints_end_while_they_are_connected() {
    let target = Target {
        opener: table(&subject(Provider::Ibverbs, Api::V2_0)),
        name: CString::new("rxe").expect("no 0"),
    };
    match raw::ends_during_connect(&target) {
        Ok(accepted) => assert!(accepted > 5, "only {accepted} accepted"),
        Err(why) => panic!("{why:?}"),
    }
}
