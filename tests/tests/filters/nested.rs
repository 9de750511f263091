//! Filters that wrap filters.

use std::fs;
use std::process::Command;

use dat_tests::prefix::PREFIX;

use crate::common::{Conf, DTEST, call, completions, dat, json, judged_as_the_ia, text};

#[test]
fn the_suite_judges_a_trace_over_faults_as_it_judges_the_ia() {
    let pages = [
        "dat_ia_open",
        "dat_ia_close",
        "dat_ia_query",
        "dat_cr_accept",
        "dat_ep_disconnect",
        "dat_ep_post_send",
        "dat_evd_dequeue",
        "dat_evd_wait",
        "dat_rmr_bind",
        "dat_srq_post_recv",
    ];
    judged_as_the_ia("nested-loop", &pages, 60);
}

#[test]
fn a_filter_over_a_filter_sees_what_passes_the_inner_one() {
    let conf = Conf::new();
    let program = PREFIX.compile("gcc", "two_endpoints.c", &["-ldat2"], "filters-nested");
    let mut command = Command::new(&program);
    command
        .arg("4-loop")
        .env("LD_LIBRARY_PATH", PREFIX.path(""));
    let output = conf.run(&mut command);
    assert!(
        output.status.success() && text(&output).contains("PASS"),
        "{}",
        text(&output)
    );
    let reports = ["4-loop", "3-loop", "nested-loop"].map(|ia| conf.reports(ia));
    assert!(
        reports.iter().all(|reports| reports.len() == 1),
        "{reports:?}"
    );
    for call_of in ["dat_ep_post_send", "dat_evd_wait", "dat_ia_close"] {
        let counts = reports.each_ref().map(|r| call(&r[0], call_of, "count"));
        assert!(
            counts[0] > 0 && counts.iter().all(|count| *count == counts[0]),
            "{call_of}: {counts:?}"
        );
    }
    let reads = reports
        .each_ref()
        .map(|r| completions(&r[0], "rdma_read", "count"));
    assert!(
        reads[0] > 0 && reads.iter().all(|count| *count == reads[0]),
        "{reads:?}"
    );
    let output = conf.run(Command::new(dat()).args(["info", "nested-classic"]));
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(conf.reports("classic").len(), 1);
}

#[test]
fn too_many_filters_and_circles_are_refused() {
    let conf = Conf::new();
    for (ia, reason) in [
        ("5-loop", "more than 4 filters"),
        (
            "circle-1-loop",
            "circle-1-loop over circle-2-loop over circle-1-loop",
        ),
    ] {
        let output = conf.run(
            Command::new(dat())
                .args(["info", ia])
                .env("DAT_LOG", "error"),
        );
        assert!(
            !output.status.success() && text(&output).contains(reason),
            "{ia}: {}",
            text(&output)
        );
    }
}

#[test]
fn dtest_runs_unmodified_under_faults_over_the_trace() {
    let conf = Conf::new();
    fs::write(conf.path("script"), "completion:any every=50 delay=1\n").expect("written");
    let namespace = "ip link set lo up 2>/dev/null
        exec \"$0\" trace user --json -o trace.json -- \"$0\" fault user --script script --json -o fault.json -- sh -c \"$1\"";
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--map-root-user", "sh", "-c", namespace])
        .arg(dat())
        .arg(DTEST)
        .env("LD_LIBRARY_PATH", PREFIX.path(""));
    let output = conf.run(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    let [trace, fault] = ["trace.json", "fault.json"]
        .map(|name| json(&fs::read(conf.path(name)).expect("the report")));
    let processes = trace["processes"].as_array().expect("a list");
    assert_eq!(processes.len(), 2, "{trace}");
    for process in processes {
        assert_eq!(call(process, "dat_ep_post_rdma_write", "count"), 1000);
    }
    let faults = fault["faults"].as_array().expect("a list");
    assert!(faults.len() >= 4, "{fault}");
}
