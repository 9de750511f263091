//! `dat new-provider` as a program. tests/kit.sh builds and runs what it makes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn dat(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dat"))
        .arg("new-provider")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the command runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_folder_that_exists_is_refused_and_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("mine")).expect("a folder");
    for language in [&["mine"][..], &["mine", "--c"]] {
        let done = dat(folder.path(), language);
        assert_eq!(done.status.code(), Some(1));
        assert!(said(&done).contains("mine: it exists"), "{}", said(&done));
    }
    let left = fs::read_dir(folder.path().join("mine")).expect("the folder");
    assert_eq!(left.count(), 0);
}

#[test]
fn a_bad_name_and_a_folder_without_the_kit_make_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let done = dat(folder.path(), &["Up/per"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        said(&done).contains("'Up/per' cannot be"),
        "{}",
        said(&done)
    );
    let done = dat(folder.path(), &["mine", "--kit", "."]);
    assert_eq!(done.status.code(), Some(1));
    assert!(said(&done).contains("not the kit"), "{}", said(&done));
    let left = fs::read_dir(folder.path()).expect("the folder");
    assert_eq!(left.count(), 0);
}

#[test]
fn the_json_names_folder_files_and_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let top = top.canonicalize().expect("the workspace");
    let kit = top.to_str().expect("a path in UTF-8");
    let done = dat(folder.path(), &["my-own", "--kit", kit, "--json"]);
    assert!(done.status.success(), "{}", said(&done));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(report["kit"], kit);
    assert_eq!(
        report["commands"][2],
        "dat conform target/debug/libmy_own.so"
    );
    let files = report["files"].as_array().expect("files");
    for file in files.iter().filter_map(|file| file.as_str()) {
        assert!(folder.path().join("my-own").join(file).is_file(), "{file}");
    }
    let manifest = fs::read_to_string(folder.path().join("my-own/Cargo.toml")).expect("a manifest");
    assert!(
        manifest.contains(&format!("{kit}/dat-provider")),
        "{manifest}"
    );
}

/// Another dtest of the machine has the TCP port, and answers the client.
#[test]
fn the_script_says_that_dtest_found_its_port_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(dat(folder.path(), &["mine", "--c"]).status.success());
    let mine = folder.path().join("mine");
    fs::write(mine.join("libmine.so"), "").expect("a file");
    // The script kills the server when the client has ended, so the client waits for what the server prints.
    let program = "#!/bin/sh
case $* in
*-s) echo \"Couldn't listen to port 15828\"; echo 'Error connect_ep: DAT_NOT_IMPLEMENTED' ;;
*) until grep -q DAT_NOT_IMPLEMENTED dtest-server.log; do sleep 0.01; done ;;
esac
";
    let path = folder.path().join("dtest");
    fs::write(&path, program).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("rights");
    let done = Command::new(mine.join("dtest.sh"))
        .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
        .output()
        .expect("the script runs");
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("Couldn't listen to port 15828"), "{said}");
}
