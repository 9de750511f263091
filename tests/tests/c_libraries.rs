//! libdat.so.1 and libdat2.so.2 as C programs use them: names, versions, and data through the loopback provider.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use dat_tests::prefix::{PREFIX, top};

/// Requires that the program ended well and printed `wants`; `what` tells the run from others.
fn expect(out: &Output, wants: &str, what: &str) {
    assert_eq!(printed(out, what), wants, "{what}: {}", words(out));
}

/// Requires that the program ended well, and returns what it printed.
fn printed(out: &Output, what: &str) -> String {
    assert!(
        out.status.success(),
        "{what}: {} {:?}",
        words(out),
        out.status
    );
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Returns what the program wrote to standard error.
fn words(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn readelf(arguments: &[&str], file: &Path) -> String {
    let out = Command::new("readelf")
        .arg("--wide")
        .args(arguments)
        .arg(file)
        .output()
        .unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap()
}

/// Returns the exported symbols as `name` or `name@@VERSION`.
fn exports(file: &Path) -> BTreeSet<String> {
    let out = Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(file)
        .output()
        .unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout)
        .unwrap()
        .lines()
        .filter(|line| !line.contains(" A "))
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect()
}

#[test]
fn libdat2_has_the_soname_and_the_versioned_exports_of_debians() {
    let ours = PREFIX.path("libdat2.so.2");
    assert!(readelf(&["-d"], &ours).contains("[libdat2.so.2]"));
    let debian = Path::new("/usr/lib/x86_64-linux-gnu/libdat2.so.2");
    assert!(debian.exists(), "apt-get install libdapl-dev");
    let (ours, debian) = (exports(&ours), exports(debian));
    assert!(debian.len() > 70);
    assert!(
        ours.iter().all(|name| name.ends_with("@@DAT_2.0")),
        "{ours:?}"
    );
    let missing: Vec<_> = debian.difference(&ours).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let more: BTreeSet<&str> = ours
        .difference(&debian)
        .filter_map(|name| name.strip_suffix("@@DAT_2.0"))
        .collect();
    assert_eq!(more, BTreeSet::from(DECLARED_ONLY));
}

/// Functions of 2.0 that Debian's headers declare and its library lacks.
const DECLARED_ONLY: [&str; 11] = [
    "dat_cno_fd_create",
    "dat_cno_trigger",
    "dat_csp_create",
    "dat_csp_free",
    "dat_csp_query",
    "dat_ep_common_connect",
    "dat_ep_post_rdma_read_to_rmr",
    "dat_ep_post_send_with_invalidate",
    "dat_ia_ha_related",
    "dat_registry_providers_related",
    "dat_rmr_create_for_ep",
];

/// Functions that compat-dapl's libdat.so.1 exports (1.2.15 to 1.2.19), all under the node `DAT_1.2`.
const COMPAT_DAPL: [&str; 73] = [
    "dat_cno_create",
    "dat_cno_free",
    "dat_cno_modify_agent",
    "dat_cno_query",
    "dat_cno_wait",
    "dat_cr_accept",
    "dat_cr_handoff",
    "dat_cr_query",
    "dat_cr_reject",
    "dat_ep_connect",
    "dat_ep_create",
    "dat_ep_create_with_srq",
    "dat_ep_disconnect",
    "dat_ep_dup_connect",
    "dat_ep_free",
    "dat_ep_get_status",
    "dat_ep_modify",
    "dat_ep_post_rdma_read",
    "dat_ep_post_rdma_write",
    "dat_ep_post_recv",
    "dat_ep_post_send",
    "dat_ep_query",
    "dat_ep_recv_query",
    "dat_ep_reset",
    "dat_ep_set_watermark",
    "dat_evd_clear_unwaitable",
    "dat_evd_create",
    "dat_evd_dequeue",
    "dat_evd_disable",
    "dat_evd_enable",
    "dat_evd_free",
    "dat_evd_modify_cno",
    "dat_evd_post_se",
    "dat_evd_query",
    "dat_evd_resize",
    "dat_evd_set_unwaitable",
    "dat_evd_wait",
    "dat_get_consumer_context",
    "dat_get_handle_type",
    "dat_ia_close",
    "dat_ia_openv",
    "dat_ia_query",
    "dat_lmr_create",
    "dat_lmr_free",
    "dat_lmr_query",
    "dat_lmr_sync_rdma_read",
    "dat_lmr_sync_rdma_write",
    "dat_psp_create",
    "dat_psp_create_any",
    "dat_psp_free",
    "dat_psp_query",
    "dat_pz_create",
    "dat_pz_free",
    "dat_pz_query",
    "dat_registry_add_provider",
    "dat_registry_list_providers",
    "dat_registry_remove_provider",
    "dat_rmr_bind",
    "dat_rmr_create",
    "dat_rmr_free",
    "dat_rmr_query",
    "dat_rsp_create",
    "dat_rsp_free",
    "dat_rsp_query",
    "dat_set_consumer_context",
    "dat_srq_create",
    "dat_srq_free",
    "dat_srq_post_recv",
    "dat_srq_query",
    "dat_srq_resize",
    "dat_srq_set_lw",
    "dat_strerror",
    "dats_get_ia_handle",
];

#[test]
fn libdat_has_the_soname_and_the_versioned_exports_of_compat_dapls() {
    let ours = PREFIX.path("libdat.so.1");
    assert!(readelf(&["-d"], &ours).contains("[libdat.so.1]"));
    let theirs: BTreeSet<String> = COMPAT_DAPL
        .iter()
        .map(|name| format!("{name}@@DAT_1.2"))
        .collect();
    let ours = exports(&ours);
    let differ: Vec<_> = ours.symmetric_difference(&theirs).collect();
    assert!(differ.is_empty(), "{differ:?}");
}

#[test]
fn a_program_linked_with_compat_dapls_library_finds_its_versions_in_ours() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let functions = COMPAT_DAPL.map(|name| format!("void {name}(void) {{}}\n"));
    std::fs::write(file("stub.c"), functions.concat()).unwrap();
    std::fs::write(
        file("stub.map"),
        "DAT_1.2 { global: dat_*; dats_*; local: *; };\n",
    )
    .unwrap();
    let stub = file("libdat-stub.so");
    let made = Command::new("gcc")
        .args(["-shared", "-fPIC", "-Wl,-soname,libdat.so.1", "-o"])
        .arg(&stub)
        .arg(format!(
            "-Wl,--version-script={}",
            file("stub.map").display()
        ))
        .arg(file("stub.c"))
        .status()
        .unwrap();
    assert!(made.success());
    let arguments = ["-DUDAPL_1_2", stub.to_str().unwrap()];
    let program = PREFIX.compile("gcc", "two_endpoints.c", &arguments, "two-compat");
    assert!(readelf(&["-V"], &program).contains("Name: DAT_1.2"));
    let out = PREFIX.run(&program, &["loop"]);
    expect(&out, "two_endpoints: PASS uDAPL 1.2\n", "compat");
    let words = words(&out);
    assert!(!words.contains("version information"), "{words}");
}

/// Returns the functions that MATRIX.md lists for a library: those of the version's table, and the library's own.
fn in_the_matrix(version: &str, library: usize) -> BTreeSet<String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let matrix = std::fs::read_to_string(top.join("MATRIX.md")).unwrap();
    let mut functions = BTreeSet::new();
    for line in matrix.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1).and_then(|cell| cell.strip_prefix("`dat"));
        let Some(name) = name.and_then(|name| name.strip_suffix('`')) else {
            continue;
        };
        let has = match cells.len() {
            // Columns: function, version, four providers, tested by.
            9 => cells[2].split(", ").any(|of| of == version),
            // Columns: function, libdat.so.1, libdat2.so.2, tested by.
            6 => cells[library] == "yes",
            _ => false,
        };
        if has {
            functions.insert(format!("dat{name}"));
        }
    }
    // Programs call it through dat_ia_openv, which is one of the libraries' own functions.
    assert!(functions.remove("dat_ia_open"));
    functions
}

#[test]
fn what_the_libraries_export_is_what_the_matrix_lists() {
    for (file, version, column) in [("libdat.so.1", "1.2", 2), ("libdat2.so.2", "2.0", 3)] {
        let exported: BTreeSet<String> = exports(&PREFIX.path(file))
            .into_iter()
            .map(|name| name.split('@').next().unwrap_or_default().to_owned())
            .collect();
        let listed = in_the_matrix(version, column);
        assert!(listed.len() > 70, "{listed:?}");
        let (unlisted, missing): (Vec<_>, Vec<_>) = (
            exported.difference(&listed).collect(),
            listed.difference(&exported).collect(),
        );
        assert!(
            unlisted.is_empty(),
            "{file} exports functions that MATRIX.md does not list: {unlisted:?}"
        );
        assert!(
            missing.is_empty(),
            "MATRIX.md lists functions that {file} does not export: {missing:?}"
        );
    }
}

#[test]
fn data_moves_through_both_libraries_from_c_and_cpp() {
    for (compiler, arguments, version) in [
        ("gcc", &["-ldat2"][..], "2.0"),
        ("g++", &["-ldat2"], "2.0"),
        ("gcc", &["-DUDAPL_1_2", "-ldat"], "1.2"),
        ("g++", &["-DUDAPL_1_2", "-ldat"], "1.2"),
    ] {
        let name = format!("two-{compiler}-{version}");
        let program = PREFIX.compile(compiler, "two_endpoints.c", arguments, &name);
        let out = PREFIX.run(&program, &["loop"]);
        let wants = format!("two_endpoints: PASS uDAPL {version}\n");
        expect(&out, &wants, &name);
    }
}

#[test]
fn a_thread_is_cancelled_in_a_wait_and_nowhere_else() {
    for (arguments, version) in [(&["-ldat2"][..], "2.0"), (&["-DUDAPL_1_2", "-ldat"], "1.2")] {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["-lpthread"]).collect();
        let name = format!("cancel-{version}");
        let program = PREFIX.compile("gcc", "cancel.c", &arguments, &name);
        for ia in ["loop", "user"] {
            let out = PREFIX.run(&program, &[ia]);
            expect(&out, "cancel: PASS\n", &format!("{version} {ia}"));
        }
    }
}

#[test]
fn providers_report_whether_their_ias_are_related() {
    PREFIX.classic();
    let program = PREFIX.compile("gcc", "related.c", &["-ldat2"], "related");
    let out = PREFIX.run(&program, &[]);
    expect(&out, "related: PASS\n", "related");
}

#[test]
fn one_process_may_use_both_with_providers_of_ours_and_classic_ones() {
    PREFIX.classic();
    let program = PREFIX.compile("gcc", "both_versions.c", &["-ldl"], "both");
    for ia in ["loop", "classic"] {
        for order in ["12", "21"] {
            let out = PREFIX.run(&program, &[ia, order]);
            expect(&out, "both_versions: PASS\n", &format!("{ia} {order}"));
        }
    }
}

#[test]
fn both_libraries_load_and_unload_from_several_threads_with_a_fork_between() {
    let libraries = &["-ldl", "-lpthread"];
    let program = PREFIX.compile("gcc", "dlopen_threads.c", libraries, "dlopen-threads");
    for ia in ["loop", "user"] {
        let out = PREFIX.run(&program, &[ia]);
        expect(&out, "dlopen_threads: PASS\n", ia);
    }
}

#[test]
fn a_second_copy_of_the_library_in_a_namespace_works() {
    let program = PREFIX.compile("gcc", "namespaces.c", &["-ldl"], "namespaces");
    for ia in ["loop", "user"] {
        let out = PREFIX.logged(&program, &["libdat2.so.2", ia]);
        expect(&out, "namespaces: PASS\n", ia);
    }
}

#[test]
fn a_process_may_fork_while_other_threads_load_and_open() {
    let libraries = &["-ldl", "-lpthread"];
    let program = PREFIX.compile("gcc", "fork_midway.c", libraries, "fork-midway");
    for ia in ["loop", "user"] {
        // The log says why an open failed.
        let out = PREFIX.logged(&program, &[ia]);
        expect(&out, "fork_midway: PASS\n", ia);
    }
}

#[test]
fn calls_work_in_handlers_of_exit_and_in_destructors_of_keys() {
    let libraries = &["-ldat2", "-lpthread"];
    let program = PREFIX.compile("gcc", "at_exit.c", libraries, "at-exit");
    for ia in ["loop", "user"] {
        let out = PREFIX.logged(&program, &[ia]);
        let said = printed(&out, ia);
        let passes = said.matches("PASS").count();
        assert_eq!(passes, 6, "{ia}: {said} {}", words(&out));
    }
}

#[test]
fn calls_work_in_threads_with_small_stacks() {
    let libraries = &["-ldat2", "-lpthread"];
    let program = PREFIX.compile("gcc", "small_stacks.c", libraries, "small-stacks");
    // What docs/c-programs.md says holds for libraries that are built for a release.
    let bytes = if cfg!(debug_assertions) {
        96 << 10
    } else {
        32 << 10
    };
    for ia in ["loop", "user"] {
        let out = PREFIX.logged(&program, &[ia, &format!("{bytes}")]);
        let said = printed(&out, ia);
        assert!(
            said.contains("small_stacks: PASS"),
            "{ia}: {said} {}",
            words(&out)
        );
    }
}

#[test]
fn a_fork_during_the_first_open_leaves_the_child_nothing_of_the_engine() {
    let program = PREFIX.compile(
        "gcc",
        "fork_in_open.c",
        &["-ldat2", "-lpthread"],
        "fork-in-open",
    );
    let arguments = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-l:softrxe.so"];
    // The loader finds the provider by its soname.
    let soname = PREFIX.path("libdat-provider-softrxe.so.2");
    std::os::unix::fs::symlink(PREFIX.path("softrxe.so"), soname).expect("a link");
    let slow = PREFIX.compile("gcc", "slow_load.c", &arguments, "slow-load.so");
    let conf = dat_tests::line("late", &slow, "127.0.6.21 0 engine=user");
    std::fs::write(PREFIX.path("late.conf"), conf).expect("dat.conf");
    let mut command = PREFIX.command(&program, &["late"]);
    let out = command
        .env("DAT_OVERRIDE", PREFIX.path("late.conf"))
        .env("DAT_LOG", "error")
        .output();
    let out = out.expect("the program starts");
    expect(&out, "fork_in_open: PASS\n", "late");
}

/// Runs three processes of a job for each way in which an MPI moves small messages.
fn as_an_mpi(version: &str, ia: &str, arguments: &[&str], modes: &[&str]) {
    let arguments: Vec<&str> = arguments.iter().copied().chain(["-ldl"]).collect();
    let name = format!("mpi-{version}");
    let program = PREFIX.compile("gcc", "mpi_like", &arguments, &name);
    for mode in modes {
        let out = PREFIX.run(&program, &[mode, ia]);
        let said = printed(&out, &format!("{version} {mode}"));
        let begin = format!("mpi_like: PASS uDAPL {version}:");
        assert!(said.starts_with(&begin), "{mode}: {said}{}", words(&out));
    }
}

#[test]
fn a_2_0_program_calls_the_provider_table_directly_as_mpis_do() {
    let modes = ["shm", "rdma", "cno", "evd", "ud"];
    for ia in ["ranks2", "udp2"] {
        as_an_mpi("2.0", ia, &[], &modes);
    }
}

#[test]
fn a_1_2_program_calls_the_provider_table_directly_as_mpis_do() {
    let modes = ["shm", "rdma", "cno", "evd"];
    as_an_mpi("1.2", "ranks1", &["-DUDAPL_1_2"], &modes);
}

#[test]
fn a_forked_child_disturbs_no_process_and_may_open_an_ia_of_its_own() {
    let program = PREFIX.compile("gcc", "fork.c", &["-ldat2", "-lpthread"], "fork");
    let out = PREFIX.run(&program, &["forking"]);
    let (said, words) = (printed(&out, "forking"), words(&out));
    // The child prints a line, and so does the parent.
    assert!(
        said.contains("two_endpoints: PASS uDAPL 2.0"),
        "{said}{words}"
    );
    assert!(said.ends_with("fork: PASS\n"), "{said}{words}");
}

#[test]
fn valgrind_finds_no_wrong_access_and_no_leak() {
    for (arguments, version) in [(&["-ldat2"][..], "2.0"), (&["-DUDAPL_1_2", "-ldat"], "1.2")] {
        let program = PREFIX.compile(
            "gcc",
            "two_endpoints.c",
            arguments,
            &format!("memcheck-{version}"),
        );
        let program = program.to_str().unwrap();
        let out = PREFIX.run(
            Path::new("valgrind"),
            &[
                "-q",
                "--error-exitcode=9",
                "--leak-check=full",
                "--show-leak-kinds=definite",
                "--errors-for-leak-kinds=definite",
                program,
                "loop",
            ],
        );
        let text = printed(&out, version);
        assert!(text.starts_with("two_endpoints: PASS"), "{version}: {text}");
    }
}

/// Returns the names of `dat_error.h`'s types and subtypes, each as `CODE(name)`.
fn codes(header: &Path) -> String {
    let text = std::fs::read_to_string(header).unwrap();
    let names = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let end =
            line.find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_')?;
        let (name, rest) = line.split_at(end);
        // The first number of the extensions is excluded: their own names begin there.
        let is_one = name.starts_with("DAT_")
            && name != "DAT_EXTENSION_BASE"
            && rest.trim_start().starts_with([',', '=', '/']);
        is_one.then(|| format!("CODE({name})\n"))
    });
    names.collect()
}

#[test]
fn every_code_has_its_strings_and_providers_are_listed() {
    for (arguments, folder, version) in [
        (&["-DUDAPL_1_2", "-ldat"][..], "dat", "1.2"),
        (&["-ldat2"], "dat2", "2.0"),
    ] {
        let names = codes(&top().join(format!("capi/include/{folder}/dat_error.h")));
        let count = names.lines().count();
        assert!(count > 100, "{version}: only {names}");
        let list = tempfile::tempdir().unwrap();
        std::fs::write(list.path().join("codes.h"), names).unwrap();
        let include = format!("-I{}", list.path().display());
        let mut all = vec![include.as_str()];
        all.extend(arguments);
        for compiler in ["gcc", "g++"] {
            let name = format!("registry-{compiler}-{version}");
            let program = PREFIX.compile(compiler, "registry.c", &all, &name);
            let out = PREFIX.run(&program, &[]);
            expect(&out, &format!("{count} codes\nregistry: PASS\n"), &name);
        }
    }
}

/// What a program gets for the usual mistakes is what docs/c-programs.md says.
#[test]
fn the_usual_mistakes_get_the_codes_of_the_page() {
    let page = std::fs::read_to_string(top().join("docs/c-programs.md")).expect("the page");
    let rows = page.lines().filter(|row| row.contains("| `DAT_"));
    let rows: Vec<&str> = rows.collect();
    let program = PREFIX.compile("gcc", "usual_mistakes.c", &["-ldat2"], "usual-mistakes");
    for ia in ["loop", "user"] {
        let out = PREFIX.run(&program, &[ia]);
        let said = printed(&out, ia);
        for row in said.lines() {
            let known = rows.iter().any(|known| known.starts_with(row));
            assert!(known, "{ia}: the page lacks {row}");
        }
        assert_eq!(said.lines().count(), rows.len(), "{ia}");
    }
}
