//! The built prefix (target/dist) on real rdma_rxe: the command, the Rust API, a C program, and error cases.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns `target/dist`, relative to this test: `target/debug/deps/NAME`.
fn dist() -> PathBuf {
    let here = std::env::current_exe().expect("this test has a path");
    let dist = here.ancestors().nth(3).expect("target").join("dist");
    assert!(
        dist.join("bin/dat").exists(),
        "run make dist first: nothing in {}",
        dist.display()
    );
    dist
}

/// Writes a dat.conf with one IA called `ia`, of both versions.
fn conf(dir: &Path, library: &str, params: &str) -> PathBuf {
    let path = dir.join("dat.conf");
    let entry = |api| format!("ia {api} threadsafe default {library} dat.2.0 \"{params}\" \"\"\n");
    std::fs::write(&path, entry("u2.0") + &entry("u1.2")).expect("written");
    path
}

fn dat(arguments: &[&str], conf: &Path) -> Output {
    Command::new(dist().join("bin/dat"))
        .args(arguments)
        .env("DAT_OVERRIDE", conf)
        .output()
        .expect("dat runs")
}

fn shell(line: &str) {
    let done = Command::new("sh")
        .args(["-ec", line])
        .status()
        .expect("sh runs");
    assert!(done.success(), "{line}");
}

const SOFTRXE: &str = "libdat-provider-softrxe.so.2";
const IBVERBS: &str = "libdat-provider-ibverbs.so.2";

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn data_moves_between_two_processes_on_each_way_to_name_the_device() {
    let dir = tempfile::tempdir().expect("a folder");
    for (library, params) in [
        (SOFTRXE, "v0 0 engine=kernel"),
        (SOFTRXE, "10.9.0.1 0 mtu=512"),
        (IBVERBS, "rxe0 1"),
        (IBVERBS, "v0 0"),
        (IBVERBS, "fd09::1 0"),
    ] {
        let done = dat(&["demo", "--ia", "ia"], &conf(dir.path(), library, params));
        let (out, err) = (
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr),
        );
        assert!(
            done.status.success() && out.contains("demo: PASS"),
            "{library} {params}: {out}{err}"
        );
        for line in ["send/receive", "RDMA write", "RDMA read"] {
            assert!(
                out.lines()
                    .any(|l| l.starts_with(line) && l.ends_with("yes")),
                "{out}"
            );
        }
    }
}

/// DAPL's provider is a C library whose entry says `nonthreadsafe`, and the command is linked without libdat2.
#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn debians_cma_provider_moves_data_for_the_rust_api() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("dat.conf");
    let line = "ia u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"v0 0\" \"\"\n";
    std::fs::write(&path, line).expect("written");
    let done = dat(&["demo", "--ia", "ia"], &path);
    let out = String::from_utf8_lossy(&done.stdout);
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success() && out.contains("demo: PASS"),
        "{out}{err}"
    );
}

/// The command and its peer are programs without libdat2, so the filter's own registry serves the C library.
#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn the_trace_wraps_debians_cma_provider() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("dat.conf");
    let line = "ia u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"v0 0\" \"\"\n";
    std::fs::write(&path, line).expect("written");
    let report = dir.path().join("report.json");
    let program = dist().join("bin/dat");
    let words = [report.as_os_str(), program.as_os_str()].map(|word| word.to_str().expect("UTF-8"));
    let arguments = [
        "trace", "ia", "--json", "-o", words[0], "--", words[1], "demo", "--ia", "ia",
    ];
    let done = dat(&arguments, &path);
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success(),
        "{}{err}",
        String::from_utf8_lossy(&done.stdout)
    );
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&report).expect("the report")).expect("JSON");
    let processes = report["processes"].as_array().expect("a list");
    let receives = |process: &&serde_json::Value| {
        let completions = process["completions"].as_array().expect("a list");
        let receives = completions.iter().find(|one| one["operation"] == "receive");
        receives.is_some_and(|one| one["count"].as_u64() > Some(0))
    };
    // Both ends of the demo.
    assert_eq!(processes.len(), 2, "{report}");
    let ends = processes.iter().filter(receives).count();
    assert_eq!(ends, 2, "{report}");
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn softrxe_makes_the_rxe_device_of_a_netdev_that_has_none() {
    shell(
        "ip link add w0 type veth peer name w1; ip addr add 10.8.0.1/24 dev w0
         ip link set w0 up; ip link set w1 up",
    );
    let dir = tempfile::tempdir().expect("a folder");
    let devices = || {
        std::fs::read_dir("/sys/class/infiniband")
            .expect("sysfs")
            .count()
    };
    let before = devices();
    let done = dat(
        &["info", "ia"],
        &conf(dir.path(), SOFTRXE, "w0 0 engine=kernel"),
    );
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(out.contains("10.8.0.1"), "{out}");
    assert_eq!(devices(), before + 1);
    shell("ip link delete w0");
}

/// Compiles a program of `tests/c` against our headers and the library of a version.
fn compile(source: &str, version: &str, dir: &Path) -> PathBuf {
    let program = dir.join(format!("{source}-{version}"));
    let of_version = match version {
        "1.2" => ["-DUDAPL_1_2", "-ldat", "-ldl"],
        _ => ["-DUDAPL_2_0", "-ldat2", "-ldl"],
    };
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = Command::new("gcc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(format!("-I{}", top.join("capi/include").display()))
        .args(dat_tests::c_sources(source))
        .arg("-Wl,--as-needed")
        .arg(format!("-L{}", dist().join("lib").display()))
        .args(of_version)
        .output()
        .expect("gcc runs");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    program
}

/// Runs the program over an IA called `ia`; returns its output.
fn run(program: &Path, arguments: &[&str], conf: &Path) -> String {
    let done = Command::new(program)
        .args(arguments)
        .env("DAT_OVERRIDE", conf)
        .env("LD_LIBRARY_PATH", dist().join("lib"))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}", program.display());
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_thread_is_cancelled_in_a_wait_and_nowhere_else() {
    let dir = tempfile::tempdir().expect("a folder");
    for version in ["1.2", "2.0"] {
        let program = compile("cancel.c", version, dir.path());
        for (library, params) in [
            (SOFTRXE, "v0 0 engine=kernel"),
            (SOFTRXE, "v0 0 engine=kernel cm=socket"),
            (IBVERBS, "rxe0 1"),
        ] {
            let conf = conf(dir.path(), library, params);
            assert_eq!(run(&program, &["ia"], &conf), "cancel: PASS\n");
        }
    }
}

/// Runs each way to move small messages once: three ranks that spin are slow in an emulated guest.
fn goes_round_the_library_as_an_mpi_does(version: &str, modes: [&[&str]; 2]) {
    let dir = tempfile::tempdir().expect("a folder");
    let program = compile("mpi_like", version, dir.path());
    let pass = format!("mpi_like: PASS uDAPL {version}:");
    let providers = [(SOFTRXE, "v0 0 engine=kernel"), (IBVERBS, "rxe0 1")];
    for ((library, params), modes) in providers.into_iter().zip(modes) {
        let conf = conf(dir.path(), library, params);
        for mode in modes {
            let out = run(&program, &[mode, "ia"], &conf);
            assert!(out.contains(&pass), "{library} {mode}: {out}");
        }
    }
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_program_of_2_0_that_goes_round_the_library_as_an_mpi_does() {
    goes_round_the_library_as_an_mpi_does("2.0", [&["ud"], &["cno"]]);
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_program_of_1_2_that_goes_round_the_library_as_an_mpi_does() {
    goes_round_the_library_as_an_mpi_does("1.2", [&[], &["rdma"]]);
}

/// Registered memory is on the heap here, whose pages a child must keep.
#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_forked_child_disturbs_no_process_and_may_open_an_ia_of_its_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = compile("fork.c", "2.0", dir.path());
    for (library, params) in [(SOFTRXE, "v0 0 engine=kernel"), (IBVERBS, "rxe0 1")] {
        let out = run(&program, &["ia"], &conf(dir.path(), library, params));
        assert!(out.contains("two_endpoints: PASS"), "{library}: {out}");
        assert!(out.ends_with("fork: PASS\n"), "{library}: {out}");
    }
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn a_classic_provider_goes_with_its_last_ia_and_comes_back_ours_stays() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = compile("reopen.c", "2.0", dir.path());
    let path = dir.path().join("dat.conf");
    let line = "ia u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"v0 0\" \"\"\n";
    std::fs::write(&path, line).expect("written");
    let out = run(&program, &["ia", "libdaplofa"], &path);
    assert_eq!(out, "open 1 closed 1 closed 0\n".repeat(3));
    let conf = conf(dir.path(), SOFTRXE, "v0 0 engine=kernel");
    let out = run(&program, &["ia", "libdat-provider-softrxe"], &conf);
    assert_eq!(out, "open 1 closed 1 closed 1\n".repeat(3));
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn what_is_wrong_is_said_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    for (library, params, wants) in [
        (SOFTRXE, "nosuch0 0", &["nosuch0", "v0"][..]),
        (SOFTRXE, "v0 0 colour=red", &["colour", "engine", "mtu"]),
        (SOFTRXE, "v0 0 mtu=9000", &["mtu", "9000", "4096"]),
        (SOFTRXE, "v0 0 engine=fast", &["engine", "kernel"]),
        (SOFTRXE, "v0 one", &["\"one\""]),
        (SOFTRXE, "v0 7", &["7"]),
        (IBVERBS, "mlx5_9 1", &["mlx5_9", "rxe0"]),
        (IBVERBS, "192.0.2.1 0", &["192.0.2.1"]),
        (
            "libnothere.so.2",
            "",
            &["libnothere.so.2", "DP-1", "dat.conf:1"],
        ),
        ("libc.so.6", "", &["libc.so.6", "DP-2"]),
    ] {
        let done = dat(&["info", "ia"], &conf(dir.path(), library, params));
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success(), "{library} {params} opens");
        for want in wants {
            assert!(
                said.contains(want),
                "{library} {params}: {said:?} lacks {want:?}"
            );
        }
    }
    let good = conf(dir.path(), SOFTRXE, "v0 0");
    let done = dat(&["info", "other"], &good);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("has no IA \"other\"; it has: ia"), "{said}");
    let done = dat(&["info", "ia"], &dir.path().join("absent.conf"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        said.contains("absent.conf") && said.contains("DAT_OVERRIDE"),
        "{said}"
    );
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn without_the_right_to_make_a_device_the_error_names_the_command() {
    shell(
        "ip link add u0 type veth peer name u1; ip addr add 10.7.0.1/24 dev u0; ip link set u0 up; ip link set u1 up",
    );
    let dir = tempfile::tempdir().expect("a folder");
    let conf = conf(dir.path(), SOFTRXE, "u0 0 engine=kernel");
    shell(&format!(
        "chmod 755 {0}; chmod 644 {1}",
        dir.path().display(),
        conf.display()
    ));
    let done = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--bounding-set=-all",
            "--inh-caps=-all",
        ])
        .arg(dist().join("bin/dat"))
        .args(["info", "ia"])
        .env("DAT_OVERRIDE", &conf)
        .output()
        .expect("setpriv runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success());
    assert!(
        said.contains("rdma link add") && said.contains("netdev u0"),
        "{said}"
    );
    shell("ip link delete u0");
}
