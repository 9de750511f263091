//! The filter `trace`, and what any filter must leave as it is.

use std::fs;
use std::path::Path;
use std::process::Command;

use dat_tests::prefix::PREFIX;
use serde_json::Value;

use crate::common::{Conf, DTEST, call, completions, dat, filter, json, judged_as_the_ia, text};

/// Runs dtest by `dat trace` and returns the reports of both processes. `libraries` is LD_LIBRARY_PATH.
fn dtest(libraries: Option<&Path>) -> Vec<Value> {
    let conf = Conf::new();
    let namespace = "ip link set lo up 2>/dev/null; exec \"$0\" trace user --json -o report.json -- sh -c \"$1\"";
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--map-root-user", "sh", "-c", namespace])
        .arg(dat())
        .arg(DTEST)
        .env_remove("LD_LIBRARY_PATH");
    if let Some(libraries) = libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    let output = conf.run(&mut command);
    let said = |name| fs::read_to_string(conf.path(name)).unwrap_or_default();
    assert!(
        output.status.success(),
        "{}\nserver (dtest is in dapl2-utils):\n{}\nclient:\n{}",
        text(&output),
        said("server"),
        said("client")
    );
    let report = json(&fs::read(conf.path("report.json")).expect("the report"));
    assert_eq!(report["status"], 0);
    report["processes"].as_array().expect("a list").clone()
}

fn counts_of_dtest(processes: &[Value]) {
    assert_eq!(processes.len(), 2, "{processes:?}");
    for process in processes {
        let program = process["program"].as_str().expect("a path");
        assert!(program.ends_with("/dtest"), "{program}");
        assert_eq!(
            (&process["ia"], &process["inner"]),
            (&"user".into(), &"user.inner".into())
        );
        // 1000 RDMA Writes of 4096 bytes, one in ten signaled; 100 round trips.
        assert_eq!(call(process, "dat_ep_post_rdma_write", "count"), 1000);
        assert_eq!(call(process, "dat_ep_post_rdma_write", "bytes"), 4_096_000);
        assert_eq!(completions(process, "rdma_write", "count"), 100);
        assert_eq!(completions(process, "receive", "failures"), 0);
        let sends = call(process, "dat_ep_post_send", "count");
        assert!(
            sends > 100 && completions(process, "receive", "count") > 100,
            "{process}"
        );
        assert_eq!(call(process, "dat_ia_close", "failures"), 0);
        let [p50, max] = ["p50_ns", "max_ns"].map(|what| completions(process, "rdma_write", what));
        assert!(p50 > 0 && p50 <= max, "{process}");
    }
    let connects: u64 = processes
        .iter()
        .map(|p| call(p, "dat_ep_connect", "count"))
        .sum();
    let accepts: u64 = processes
        .iter()
        .map(|p| call(p, "dat_cr_accept", "count"))
        .sum();
    assert_eq!((connects, accepts), (1, 1));
}

#[test]
fn dtest_runs_unmodified_under_the_trace_and_our_library() {
    let libraries = PREFIX.path("libdat2.so.2");
    counts_of_dtest(&dtest(libraries.parent()));
}

#[test]
fn dtest_runs_unmodified_under_the_trace_and_the_classic_library() {
    counts_of_dtest(&dtest(None));
}

#[test]
fn the_suite_judges_a_traced_ia_as_it_judges_the_ia() {
    judged_as_the_ia("traced-loop", &[], 200);
}

#[test]
fn c_programs_run_on_traced_ias() {
    let conf = Conf::new();
    let program = PREFIX.compile(
        "gcc",
        "two_endpoints.c",
        &["-ldat2"],
        "filters-two_endpoints",
    );
    for ia in ["user", "loop"] {
        let mut command = Command::new(&program);
        command
            .arg(format!("traced-{ia}"))
            .env("LD_LIBRARY_PATH", PREFIX.path(""));
        let output = conf.run(&mut command);
        assert!(
            output.status.success() && text(&output).contains("PASS"),
            "{}",
            text(&output)
        );
        let reports = conf.reports(ia);
        assert_eq!(reports.len(), 1);
        assert!(
            completions(&reports[0], "rdma_read", "count") > 0,
            "{}",
            reports[0]
        );
    }
}

#[test]
fn stale_and_invented_handles_are_refused_as_without_a_filter() {
    let conf = Conf::new();
    let program = PREFIX.compile("gcc", "no_objects.c", &["-ldat2"], "filters-no_objects");
    for names in [
        &["traced-user"][..],
        &["traced-loop", "user"],
        &["user", "traced-loop"],
    ] {
        let mut command = Command::new(&program);
        command.args(names).env("LD_LIBRARY_PATH", PREFIX.path(""));
        let output = conf.run(&mut command);
        assert!(output.status.success(), "{names:?}: {}", text(&output));
    }
}

#[test]
fn a_classic_c_provider_is_wrapped_in_rust_and_c_programs() {
    let conf = Conf::new();
    let output = conf.run(Command::new(dat()).args(["info", "traced-classic"]));
    assert!(output.status.success(), "{}", text(&output));
    let program = PREFIX.compile("gcc", "open_close.c", &["-ldat2"], "filters-open_close");
    let mut command = Command::new(&program);
    // A thread of a provider may run a little longer than its last IA.
    command
        .args(["traced-classic", "3"])
        .arg(PREFIX.path("classic-2.0.so"))
        .env("LD_LIBRARY_PATH", PREFIX.path(""));
    let output = conf.run(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    let reports = conf.reports("classic");
    assert_eq!(reports.len(), 2);
    let closes = reports.iter().map(|r| call(r, "dat_ia_close", "count"));
    assert_eq!(closes.max(), Some(3), "{reports:?}");
}

#[test]
fn each_operation_is_a_span_if_it_is_requested() {
    let conf = Conf::new();
    let program = PREFIX.compile("gcc", "two_endpoints.c", &["-ldat2"], "filters-spans");
    let run = |level| {
        let mut command = Command::new(&program);
        command
            .arg("traced-loop")
            .env("LD_LIBRARY_PATH", PREFIX.path(""))
            .env("DAT_LOG", level);
        let output = conf.run(&mut command);
        assert!(output.status.success(), "{}", text(&output));
        let lines = String::from_utf8_lossy(&output.stderr).into_owned();
        let spans = lines.lines().filter(|line| line.contains(": operation "));
        spans.map(str::to_owned).collect::<Vec<_>>()
    };
    let spans = run("trace");
    for operation in ["send", "receive", "rdma_read", "rdma_write"] {
        let done = spans.iter().filter(|span| {
            let fields = [
                " handle=",
                " bytes=",
                " status=0 ",
                " transferred=",
                " latency_ns=",
            ];
            span.contains(&format!("operation=\"{operation}\""))
                && fields.iter().all(|field| span.contains(field))
        });
        assert!(done.count() > 0, "no span of a {operation}: {spans:#?}");
    }
    assert_eq!(run("info"), Vec::<String>::new());
}

#[test]
fn the_status_of_a_traced_program_is_kept_and_a_wrong_entry_is_explained() {
    let conf = Conf::new();
    let mut trace = Command::new(dat());
    trace.args(["trace", "loop", "--", "sh", "-c", "exit 7"]);
    let output = conf.run(&mut trace);
    assert_eq!(output.status.code(), Some(7));
    assert!(
        text(&output).contains("no process opened loop"),
        "{}",
        text(&output)
    );
    // A report that cannot be written is known before the program runs.
    let mut lost = Command::new(dat());
    lost.args(["trace", "loop", "-o", "none/report", "--"]);
    let output = conf.run(lost.args(["touch", "it-ran"]));
    let said = text(&output);
    assert!(said.contains("cannot write none/report"), "{said}");
    assert!(!conf.path("it-ran").exists(), "{said}");
    let mut killed = Command::new(dat());
    killed.args(["trace", "loop", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(conf.run(&mut killed).status.code(), Some(128 + 9));
    // SIGTERM of the command ends the program.
    let mut ended = Command::new(dat());
    ended.args([
        "trace",
        "loop",
        "--",
        "sh",
        "-c",
        "kill -TERM $PPID; exec sleep 600",
    ]);
    assert_eq!(conf.run(&mut ended).status.code(), Some(128 + 15));
    let of_1_2 = dat_tests::line("old", &filter(), "filter=trace inner=loop file=/dev/null")
        .replace("u2.0", "u1.2");
    fs::write(conf.path("old.conf"), of_1_2).expect("written");
    let mut check = Command::new(dat());
    let output = conf.run(check.arg("check").arg(conf.path("old.conf")));
    assert!(
        !output.status.success()
            && text(&output).contains("old.conf:1:1: a filter is of u2.0 only"),
        "{}",
        text(&output)
    );
    let output = conf.run(Command::new(dat()).args(["info", "without"]));
    assert!(
        !output.status.success() && text(&output).contains("inner=softrxe-lo"),
        "{}",
        text(&output)
    );
}
