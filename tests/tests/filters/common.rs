//! What the tests of all filters need: a dat.conf with wrapped IAs, the reports, and a run of dtest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dat_tests::prefix::PREFIX;
use serde_json::Value;

pub(crate) fn filter() -> PathBuf {
    dat_tests::built().join("libdat_provider_filter.so")
}

pub(crate) fn dat() -> PathBuf {
    dat_tests::built().join("dat")
}

/// A folder with a dat.conf: IAs of the user engine, of the loopback and of a classic C provider, and a trace over each.
pub(crate) struct Conf(tempfile::TempDir);

impl Conf {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn run(&self, command: &mut Command) -> Output {
        command
            .env("DAT_OVERRIDE", self.path("dat.conf"))
            .current_dir(self.0.path())
            .output()
            .expect("the program starts")
    }

    /// Returns the reports of processes that used the trace over `ia`.
    pub(crate) fn reports(&self, ia: &str) -> Vec<Value> {
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

pub(crate) fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Returns a number of a process's report: of `list`, whose rows are named by `key`.
pub(crate) fn number(report: &Value, list: &str, key: &str, name: &str, what: &str) -> u64 {
    let rows = report[list].as_array().expect("a list");
    let row = rows.iter().find(|row| row[key] == name);
    row.and_then(|row| row[what].as_u64()).unwrap_or(0)
}

pub(crate) fn call(report: &Value, name: &str, what: &str) -> u64 {
    number(report, "calls", "call", name, what)
}

pub(crate) fn completions(report: &Value, name: &str, what: &str) -> u64 {
    number(report, "completions", "operation", name, what)
}

/// Server and client of dtest with blocks of 4 KiB, alone in their network namespace, so that the server is ready when a TCP
/// socket listens.
pub(crate) const DTEST: &str = "
dtest -P user -b 4096 -s >server 2>&1 & server=$!
until cat /proc/net/tcp /proc/net/tcp6 | grep ' 0A ' >/dev/null; do
    kill -0 $server || { cat server; exit 1; }
    sleep 0.05
done
dtest -P user -b 4096 -h 127.0.13.1 >client 2>&1; client=$?
[ $client = 0 ] || kill $server
wait $server && [ $client = 0 ] && grep -q PASSED server && grep -q PASSED client
";

/// Returns the result of each statement of some pages, or of all if none is named.
pub(crate) fn verdicts(conf: &Conf, ia: &str, pages: &[&str]) -> Vec<(String, String)> {
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
pub(crate) fn judged_as_the_ia(wrapped: &str, pages: &[&str], statements: usize) {
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
