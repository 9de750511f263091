//! A statement that lasts longer than the time limit holds if it reports progress.

use std::time::Duration;

use dat_conformance::Api;
use dat_conformance::suite::{self, Outcome, Plan, Subject};

#[test]
fn a_slow_machine_is_no_hang() {
    // The loopback delays each report of a connection by 60 ms, so 100 connections with five reports take 30 s.
    let subject = Subject {
        library: dat_tests::built().join("libdat_loopback_provider.so"),
        name: "slow".into(),
        params: "127.0.4.61 0 delay_ms=60".into(),
        api: Api::V2_0,
    };
    let says = "After 100 connections, each with memory of its own, all objects are free, and the IA closes gracefully.";
    let plan = Plan {
        program: vec![
            env!("CARGO_BIN_EXE_dat-conformance").into(),
            "--test-process".into(),
        ],
        pages: vec!["dat_ia_close".into()],
        says: vec![says.into()],
        timeout: Duration::from_secs(12),
    };
    let judged = suite::judge_all(&subject, &plan, |_| ()).expect("the provider opens");
    assert_eq!(judged.len(), 1, "{judged:?}");
    assert_eq!(judged[0].outcome, Outcome::Holds);
    assert!(judged[0].time > plan.timeout, "{judged:?} shows nothing");
}
