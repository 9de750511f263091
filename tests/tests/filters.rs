//! The filters over other providers: C programs, Debian's dtest and the conformance suite get from a wrapped IA what they get
//! from the IA itself; `dat trace` says what they called, and each kind of fault of `dat fault` has its effect.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use dat_tests::prefix::PREFIX;
use serde_json::Value;

fn filter() -> PathBuf {
    dat_tests::built().join("libdat_provider_filter.so")
}

fn dat() -> PathBuf {
    dat_tests::built().join("dat")
}

/// A folder with a dat.conf: IAs of the user engine, of the loopback and of a classic C provider, and a trace over each.
struct Conf(tempfile::TempDir);

impl Conf {
    fn new() -> Self {
        PREFIX.classic();
        let folder = tempfile::tempdir().expect("a folder");
        // The suite opens thread-safe IAs only, and under the classic library dtest others only.
        let line = |ia: &str, library: &Path, params: &str| {
            let line = dat_tests::line(ia, library, params);
            if ia.ends_with("loop") {
                line
            } else {
                line.replace(" threadsafe ", " nonthreadsafe ")
            }
        };
        let mut lines = String::new();
        for (ia, library, params) in [
            ("user", dat_tests::softrxe(), "127.0.13.1 0 engine=user"),
            ("loop", dat_tests::loopback(), "127.0.0.1 0"),
            ("classic", PREFIX.path("classic-2.0.so"), ""),
        ] {
            let file = folder.path().join(format!("{ia}-%p.json"));
            let settings = format!("filter=trace inner={ia} file={}", file.display());
            lines += &line(ia, &library, params);
            lines += &line(&format!("traced-{ia}"), &filter(), &settings);
        }
        let faults = folder.path().join("no-faults");
        fs::write(&faults, "dat_pz_create nth=1000000 kill\n").expect("the script is written");
        for (ia, settings) in [
            ("faulty-loop", "fault inner=loop script="),
            ("nested-loop", "trace inner=faulty-loop"),
            ("3-loop", "trace inner=nested-loop"),
            ("4-loop", "trace inner=3-loop"),
            ("5-loop", "trace inner=4-loop"),
            ("circle-1-loop", "trace inner=circle-2-loop"),
            ("circle-2-loop", "trace inner=circle-1-loop"),
            ("nested-classic", "fault inner=traced-classic script="),
        ] {
            let file = folder.path().join(format!("{ia}-%p.json"));
            let mut settings = format!("filter={settings}");
            if settings.ends_with("script=") {
                settings += &faults.display().to_string();
            }
            settings += &format!(" file={}", file.display());
            lines += &line(ia, &filter(), &settings);
        }
        lines += &line("without", &filter(), "filter=trace file=/dev/null");
        fs::write(folder.path().join("dat.conf"), lines).expect("dat.conf is written");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, command: &mut Command) -> Output {
        command
            .env("DAT_OVERRIDE", self.path("dat.conf"))
            .current_dir(self.0.path())
            .output()
            .expect("the program starts")
    }

    /// Returns the reports of processes that used the trace over `ia`.
    fn reports(&self, ia: &str) -> Vec<Value> {
        let files = fs::read_dir(self.0.path()).expect("the folder");
        files
            .filter_map(|file| {
                let file = file.ok()?;
                let name = file.file_name().into_string().ok()?;
                let is_one = name.starts_with(&format!("{ia}-")) && name.ends_with(".json");
                is_one.then(|| json(&fs::read(file.path()).expect("the report")))
            })
            .collect()
    }
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Returns a number of a process's report: of `list`, whose rows are named by `key`.
fn number(report: &Value, list: &str, key: &str, name: &str, what: &str) -> u64 {
    let rows = report[list].as_array().expect("a list");
    let row = rows.iter().find(|row| row[key] == name);
    row.and_then(|row| row[what].as_u64()).unwrap_or(0)
}

fn call(report: &Value, name: &str, what: &str) -> u64 {
    number(report, "calls", "call", name, what)
}

fn completions(report: &Value, name: &str, what: &str) -> u64 {
    number(report, "completions", "operation", name, what)
}

/// Server and client of dtest with blocks of 4 KiB, alone in their network namespace, so that the server is ready when a TCP
/// socket listens.
const DTEST: &str = "
dtest -P user -b 4096 -s >server 2>&1 & server=$!
until cat /proc/net/tcp /proc/net/tcp6 | grep ' 0A ' >/dev/null; do
    kill -0 $server || { cat server; exit 1; }
    sleep 0.05
done
dtest -P user -b 4096 -h 127.0.13.1 >client 2>&1; client=$?
[ $client = 0 ] || kill $server
wait $server && [ $client = 0 ] && grep -q PASSED server && grep -q PASSED client
";

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

/// Returns the result of each statement of some pages, or of all if none is named.
fn verdicts(conf: &Conf, ia: &str, pages: &[&str]) -> Vec<(String, String)> {
    let mut command = Command::new(dat());
    command.args(["conform", ia, "--json"]);
    for page in pages {
        command.args(["--page", page]);
    }
    let output = conf.run(&mut command);
    let report = json(&output.stdout);
    let run = &report["runs"][0];
    assert!(run["not_tested"].is_null(), "{run}{}", text(&output));
    let statements = run["statements"].as_array().expect("a list");
    statements
        .iter()
        .map(|s| {
            let of = |key: &str| s[key].as_str().unwrap_or_default();
            (
                format!("{}: {}", of("page"), of("statement")),
                of("result").to_owned(),
            )
        })
        .collect()
}

/// Checks that the suite says the same of a wrapped IA as of the IA, in at least so many statements.
fn judged_as_the_ia(wrapped: &str, pages: &[&str], statements: usize) {
    let conf = Conf::new();
    let (plain, wrapped) = std::thread::scope(|scope| {
        let plain = scope.spawn(|| verdicts(&conf, "loop", pages));
        let wrapped = verdicts(&conf, wrapped, pages);
        (plain.join().expect("the suite runs"), wrapped)
    });
    assert!(plain.len() >= statements, "{plain:?}");
    let other: Vec<_> = plain.iter().zip(&wrapped).filter(|(a, b)| a != b).collect();
    assert!(
        plain.len() == wrapped.len() && other.is_empty(),
        "{other:#?}"
    );
}

#[test]
fn the_suite_judges_a_traced_ia_as_it_judges_the_ia() {
    judged_as_the_ia("traced-loop", &[], 200);
}

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
    let mut killed = Command::new(dat());
    killed.args(["trace", "loop", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(conf.run(&mut killed).status.code(), Some(128 + 9));
    let output = conf.run(Command::new(dat()).args(["info", "without"]));
    assert!(
        !output.status.success() && text(&output).contains("inner=softrxe-lo"),
        "{}",
        text(&output)
    );
}

/// Runs `tests/c/faulty.c` under a script of faults. Returns its lines, the report, and the status of `dat fault`.
fn faulty(script: &str, seed: u64) -> (Vec<String>, Value, Option<i32>) {
    static PROGRAM: LazyLock<PathBuf> =
        LazyLock::new(|| PREFIX.compile("gcc", "faulty.c", &["-ldat2"], "filters-faulty"));
    let conf = Conf::new();
    fs::write(conf.path("script"), script).expect("the script is written");
    let mut command = Command::new(dat());
    command
        .args([
            "fault",
            "loop",
            "--script",
            "script",
            "--json",
            "-o",
            "report.json",
        ])
        .args(["--seed", &seed.to_string(), "--"])
        .arg(&*PROGRAM)
        .arg("loop")
        .env("LD_LIBRARY_PATH", PREFIX.path(""));
    let output = conf.run(&mut command);
    let report = fs::read(conf.path("report.json")).unwrap_or_default();
    assert!(!report.is_empty(), "{}", text(&output));
    let lines = String::from_utf8_lossy(&output.stdout);
    (
        lines.lines().map(str::to_owned).collect(),
        json(&report),
        output.status.code(),
    )
}

/// Returns what the program says of a message.
fn message(lines: &[String], number: u32) -> &str {
    let begin = format!("message {number}: ");
    let found = lines.iter().find_map(|line| line.strip_prefix(&begin));
    found.unwrap_or_else(|| panic!("no {begin:?}: {lines:#?}"))
}

const WELL: &str = "post 0, request 0, receive 0, bytes right";

/// Runs a script with one rule, checks that its fault was logged once, and that all messages but `odd` went well.
fn one_fault(rule: &str, odd: u32) -> Vec<String> {
    let (lines, report, status) = faulty(rule, 1);
    assert_eq!(status, Some(0), "{rule}: {lines:#?}");
    let faults = report["faults"].as_array().expect("a list");
    assert_eq!(
        (faults.len(), &faults[0]["rule"]),
        (1, &rule.into()),
        "{report}"
    );
    for number in (1..=6).filter(|number| *number != odd) {
        assert_eq!(message(&lines, number), WELL, "{rule}: message {number}");
    }
    assert!(
        lines.contains(&"connection up".into()),
        "{rule}: {lines:#?}"
    );
    lines
}

#[test]
fn without_a_fault_all_messages_arrive() {
    let (lines, report, status) = faulty("# nothing\n", 1);
    assert_eq!(
        (status, report["faults"].as_array().map(Vec::len)),
        (Some(0), Some(0))
    );
    (1..=6).for_each(|number| assert_eq!(message(&lines, number), WELL));
    assert!(
        lines.contains(&"read: request 0, bytes right".into()),
        "{lines:#?}"
    );
}

#[test]
fn a_call_fails_with_the_error_of_the_rule_and_does_nothing() {
    let lines = one_fault("dat_ep_post_send nth=3 fail=DAT_INSUFFICIENT_RESOURCES", 3);
    assert!(
        message(&lines, 3).starts_with("post 0x80030000, request none, receive none"),
        "{lines:#?}"
    );
}

#[test]
fn a_dropped_request_succeeds_and_never_completes() {
    let lines = one_fault("dat_ep_post_send nth=2 drop", 2);
    assert_eq!(
        message(&lines, 2),
        "post 0, request none, receive none, bytes wrong"
    );
}

#[test]
fn a_dropped_completion_does_not_come_but_the_bytes_do() {
    let lines = one_fault("completion:receive nth=4 drop", 4);
    assert_eq!(
        message(&lines, 4),
        "post 0, request 0, receive none, bytes right"
    );
    let lines = one_fault("completion:send nth=4 drop", 4);
    assert_eq!(
        message(&lines, 4),
        "post 0, request none, receive 0, bytes right"
    );
}

#[test]
fn a_completion_has_the_status_of_the_rule() {
    let lines = one_fault("completion:send nth=5 fail=DAT_DTO_ERR_TRANSPORT", 5);
    assert_eq!(
        message(&lines, 5),
        "post 0, request 8, receive 0, bytes right"
    );
}

#[test]
fn what_was_received_or_read_is_corrupted() {
    let lines = one_fault("completion:receive nth=6 corrupt=3", 6);
    assert_eq!(
        message(&lines, 6),
        "post 0, request 0, receive 0, bytes wrong"
    );
    let lines = one_fault("completion:rdma_read nth=1 corrupt", 0);
    assert!(
        lines.contains(&"read: request 0, bytes wrong".into()),
        "{lines:#?}"
    );
}

#[test]
fn a_call_is_delayed() {
    let lines = one_fault("dat_pz_create nth=1 delay=50", 0);
    let time = lines[0].split_whitespace().nth(2).expect("a time");
    assert!(
        time.parse::<u32>().expect("milliseconds") >= 50,
        "{lines:#?}"
    );
}

#[test]
fn a_connection_is_ended() {
    let (lines, report, status) = faulty("completion:receive nth=2 disconnect", 1);
    assert_eq!(
        (status, lines.last().map(String::as_str)),
        (Some(0), Some("connection down")),
        "{lines:#?}"
    );
    assert_eq!(
        report["faults"][0]["detail"],
        "dat_ep_disconnect returned 0x0"
    );
}

#[test]
fn a_process_is_killed_after_its_fault_was_logged() {
    let (lines, report, status) = faulty("completion:send nth=3 kill", 1);
    assert_eq!(status, Some(128 + 9), "{lines:#?}");
    assert_eq!(
        (&report["faults"][0]["number"], message(&lines, 2)),
        (&3.into(), WELL)
    );
    assert!(
        !lines.iter().any(|line| line.starts_with("message 3")),
        "{lines:#?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let script = "dat_ep_post_send chance=0.5 fail=DAT_INTERNAL_ERROR\n";
    let of = |seed| {
        let (lines, report, _) = faulty(script, seed);
        let faults = report["faults"].as_array().expect("a list").clone();
        let numbers: Vec<_> = faults
            .iter()
            .map(|fault| fault["number"].as_u64())
            .collect();
        (lines[1..].to_vec(), numbers)
    };
    let first = of(3);
    assert!(!first.1.is_empty() && first.1.len() < 6, "{first:?}");
    assert_eq!(first, of(3));
    assert_ne!(first.1, of(4).1);
}

#[test]
fn a_wrong_script_is_explained_with_its_line() {
    let conf = Conf::new();
    fs::write(conf.path("script"), "\ncompletion:send nth=1 dorp\n").expect("written");
    let mut command = Command::new(dat());
    command.args(["fault", "loop", "--script", "script", "--"]);
    let output = conf.run(command.arg(dat()).args(["info", "loop"]));
    assert!(!output.status.success(), "{}", text(&output));
    assert!(
        text(&output).contains("line 2") && text(&output).contains("\"dorp\""),
        "{}",
        text(&output)
    );
}

#[test]
fn dtest_runs_unmodified_under_delays_and_dies_of_a_kill() {
    let run = |script: &str| {
        let conf = Conf::new();
        fs::write(conf.path("script"), script).expect("written");
        let namespace = "ip link set lo up 2>/dev/null; exec \"$0\" fault user --script script --json -o report.json -- sh -c \"$1\"";
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--map-root-user", "sh", "-c", namespace])
            .arg(dat())
            .arg(DTEST)
            .env("LD_LIBRARY_PATH", PREFIX.path(""));
        let output = conf.run(&mut command);
        let report = fs::read(conf.path("report.json")).unwrap_or_default();
        assert!(!report.is_empty(), "{}", text(&output));
        (
            output.status.success(),
            json(&report)["faults"].as_array().expect("a list").len(),
        )
    };
    let (passed, faults) = run("completion:any every=50 delay=1\n");
    assert!(passed && faults >= 4, "{faults} faults, passed: {passed}");
    let (passed, faults) = run("completion:receive nth=20 kill\n");
    assert!(!passed && faults >= 1, "{faults} faults, passed: {passed}");
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
