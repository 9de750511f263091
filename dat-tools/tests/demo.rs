//! `dat demo` and `dat list` where IAs do not open, and what `dat doctor` says of them.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn dat(words: &str, conf: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(words.split(' '))
        .env("DAT_OVERRIDE", conf)
        .env_remove("DAT_LOG")
        .stdin(Stdio::null())
        .output()
        .expect("dat runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Takes UDP port 4791 of an address that no other test uses, as a program that is no engine does, and writes a dat.conf with an IA without
/// a device, one whose port is taken, and more lines.
fn conf(taken: &str, more: &str) -> (UdpSocket, tempfile::TempDir, PathBuf) {
    let stranger = UdpSocket::bind((taken, 4791)).expect("the port is free");
    let dir = tempfile::tempdir().expect("a folder");
    let line = |ia, params: &str| dat_tests::line(ia, &dat_tests::softrxe(), params);
    let absent = line("absent", "nosuch0 0 engine=user");
    let taken = line("taken", &format!("{taken} 0 engine=user"));
    let path = dir.path().join("dat.conf");
    fs::write(&path, absent + &taken + more).expect("written");
    (stranger, dir, path)
}

#[test]
fn what_the_demo_skips_is_one_line_and_no_error() {
    let params = "127.88.10.2 0 engine=user";
    let free = dat_tests::line("free", &dat_tests::softrxe(), params);
    let (_stranger, _dir, conf) = conf("127.88.10.1", &free);
    let done = dat("demo", &conf);
    let said = text(&done.stdout);
    assert!(done.status.success(), "{said}{}", text(&done.stderr));
    assert_eq!(text(&done.stderr), "");
    let first = said.lines().next().unwrap_or_default();
    for part in [
        "demo: absent has no device here (",
        "; taken does not open here (UDP port 4791 of 127.88.10.1 belongs to ",
        "; using free",
    ] {
        assert!(first.contains(part), "{first} lacks {part}");
    }
    assert!(said.ends_with("demo: PASS\n"), "{said}");
    for words in ["demo free", "demo --ia free"] {
        let done = dat(words, &conf);
        assert!(done.status.success(), "{words}: {}", text(&done.stderr));
        assert!(text(&done.stdout).starts_with("IA free: "), "{words}");
    }
    let both = dat("demo free --ia free", &conf);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn a_port_that_another_program_has_is_told_once_with_what_to_do() {
    let (_stranger, _dir, conf) = conf("127.88.10.3", "");
    let named = dat("demo taken", &conf);
    assert_eq!(named.status.code(), Some(1));
    let said = text(&named.stderr);
    let wants = "dat: IA taken does not open: UDP port 4791 of 127.88.10.3 belongs to ";
    assert!(said.starts_with(wants), "{said}");
    assert!(said.contains("dat serve-port 127.88.10.3"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for command in ["demo", "serve"] {
        let none = dat(command, &conf);
        assert_eq!(none.status.code(), Some(1));
        let said = text(&none.stderr);
        assert!(said.contains("no IA of dat.conf opens"), "{said}");
        assert!(said.contains("\n  taken: UDP port 4791"), "{said}");
        assert!(said.contains("\n  absent: no device here"), "{said}");
        assert_eq!(said.lines().count(), 3, "{said}");
    }
    let listed = dat("list --open", &conf);
    let reason = ":2: UDP port 4791 of 127.88.10.3 belongs to ";
    assert!(
        text(&listed.stdout).contains(reason),
        "{}",
        text(&listed.stdout)
    );
    assert_eq!(text(&listed.stderr), "");
    for words in [
        "info taken",
        "counters taken",
        "ping taken 127.88.10.3",
        "perf taken 127.88.10.3",
        "serve taken",
    ] {
        let said = text(&dat(words, &conf).stderr);
        assert!(said.starts_with(wants), "{words}: {said}");
        assert!(said.contains("; its entry is "), "{words}: {said}");
        assert!(!said.contains("DAT_LOG"), "{words}: {said}");
        assert_eq!(said.lines().count(), 1, "{words}: {said}");
    }
}

#[test]
fn a_pattern_counts_by_the_names_that_it_stands_for() {
    let stranger = UdpSocket::bind(("127.88.10.5", 4791)).expect("the port is free");
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("dat.conf");
    let line = |ia, params: &str| dat_tests::line(ia, &dat_tests::softrxe(), params);
    let params = ["nosuch0", "127.88.10.5", "127.88.10.6"].map(|d| format!("{d} 0 engine=user"));
    let text_of_conf = ["none-*", "taken-*", "free-*"]
        .iter()
        .zip(&params)
        .map(|(ia, params)| line(ia, params))
        .collect::<String>();
    fs::write(&path, &text_of_conf).expect("written");
    let listed = text(&dat("list", &path).stdout);
    for part in [
        ":1: this machine has no device, netdev or address \"nosuch0\"",
        ":2: stands for taken-127.88.10.5",
        "2 of 3 usable",
    ] {
        assert!(listed.contains(part), "{listed} lacks {part}");
    }
    let listed = text(&dat("list --open", &path).stdout);
    for part in [
        ":1: this machine has no device",
        ":2: UDP port 4791 of 127.88.10.5 belongs to ",
        ":3: stands for free-127.88.10.6",
        "1 of 3 usable",
    ] {
        assert!(listed.contains(part), "{listed} lacks {part}");
    }
    let done = dat("demo", &path);
    let said = text(&done.stdout);
    assert!(done.status.success(), "{said}{}", text(&done.stderr));
    assert!(said.contains("; using free-127.88.10.6\n"), "{said}");
    for words in ["info nosuch", "ping nosuch 127.88.10.6", "doctor nosuch"] {
        let done = dat(words, &path);
        let said = text(&done.stdout) + &text(&done.stderr);
        let wants = "has no IA \"nosuch\"; it has: the patterns none-*, taken-*, free-*; on this machine its patterns \
                     stand for taken-127.88.10.5, free-127.88.10.6";
        assert!(said.contains(wants), "{words}: {said}");
    }
    drop(stranger);
}

#[test]
fn a_misspelt_ia_in_the_place_of_the_host_is_recognised() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("dat.conf");
    let line = dat_tests::line("softrxe-lo", &dat_tests::softrxe(), "lo 0 engine=user");
    let pattern = dat_tests::line(
        "by-address-*",
        &dat_tests::softrxe(),
        "127.88.10.7 0 engine=user",
    );
    fs::write(&path, line + &pattern).expect("written");
    for (given, meant) in [
        ("softrxe-ol", "softrxe-lo"),
        ("by-address-127.88.10.8.", "by-address-127.88.10.7"),
    ] {
        for command in ["ping", "perf"] {
            let said = text(&dat(&format!("{command} {given}"), &path).stderr);
            let wants = format!(
                "did you mean the IA \"{meant}\"? Then the host is missing: dat {command} {meant} HOST"
            );
            assert!(said.contains(&wants), "{said} lacks {wants}");
        }
    }
}

#[test]
fn the_doctor_opens_an_ia_once_in_each_of_two_processes() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("dat.conf");
    let line = |ia, file: &str| {
        let file = dir.path().join(file).display().to_string();
        let params = format!("127.88.10.9 0 engine=user pcap={file}");
        dat_tests::line(ia, &dat_tests::softrxe(), &params)
    };
    fs::write(&path, line("each", "%p.pcap") + &line("one", "one")).expect("written");
    let findings = |ia: &str| -> Value {
        let done = dat(&format!("doctor {ia} --json"), &path);
        serde_json::from_str(&text(&done.stdout)).expect("JSON")
    };
    let of = |findings: &Value, check: &str| {
        let all = findings.as_array().expect("findings");
        all.iter().find(|f| f["check"] == check).cloned()
    };
    let each = findings("each");
    let opened = of(&each, "open").expect("a finding");
    assert_eq!(opened["state"], "ok", "{each}");
    assert!(
        opened["text"]
            .as_str()
            .is_some_and(|t| t.ends_with(" at 127.88.10.9")),
        "{each}"
    );
    assert_eq!(of(&each, "transfer").expect("a finding")["state"], "ok");
    let files = fs::read_dir(dir.path()).expect("listed").flatten();
    let captures = files.filter(|f| f.file_name().to_string_lossy().ends_with(".pcap"));
    assert_eq!(captures.count(), 2);
    // A file that only one process may write.
    let one = findings("one");
    let transfer = of(&one, "transfer").expect("a finding");
    assert_eq!(transfer["state"], "fault", "{one}");
    let text = transfer["text"].as_str().unwrap_or_default();
    for part in [
        "only one process at a time opens IA one: ",
        "another adapter writes it: each needs a file of its own",
    ] {
        assert!(text.contains(part), "{one}");
    }
}

#[test]
fn the_doctor_fails_where_no_provider_has_its_library() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("dat.conf");
    let missing = ["b", "c"].map(|ia| dat_tests::line(ia, Path::new("libno-such.so.2"), "lo 0"));
    fs::write(&path, missing.concat()).expect("written");
    let examined = dat("doctor --json", &path);
    let findings: Value = serde_json::from_str(&text(&examined.stdout)).expect("JSON");
    let findings = findings.as_array().expect("findings");
    let of_libraries = findings.iter().find(|f| f["check"] == "libraries");
    let finding = of_libraries.expect("a finding");
    assert_eq!(finding["state"], "fault", "{finding}");
    let said = finding["text"].as_str().unwrap_or_default();
    let wants = "none of 2 entries has one that can be used: ";
    assert!(
        said.starts_with(wants) && said.contains("libno-such.so.2"),
        "{said}"
    );
    assert_eq!(examined.status.code(), Some(1));
    let library = dat_tests::softrxe();
    let usable = dat_tests::line("a", &library, "lo 0 engine=user");
    fs::write(&path, missing.concat() + &usable).expect("written");
    let said = text(&dat("doctor", &path).stdout);
    let wants = format!("ok      libraries    {}", library.display());
    assert!(said.contains(&wants), "{said} lacks {wants}");
}

#[test]
fn the_name_of_a_pattern_is_answered_with_its_names() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("dat.conf");
    let line = |ia, params: &str| dat_tests::line(ia, &dat_tests::softrxe(), params);
    // The second one would match the name of the first.
    let lines = line("rx-*-a", "* 0 engine=user") + &line("rx-*", "* 0 engine=user");
    fs::write(&path, lines).expect("written");
    for words in ["doctor", "info", "demo", "counters"] {
        let done = dat(&format!("{words} rx-*-a"), &path);
        let said = text(&done.stdout) + &text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{words}: {said}");
        for part in ["\"rx-*-a\" as a pattern", "; on this machine ", "rx-lo-a"] {
            assert!(said.contains(part), "{words}: {said} lacks {part}");
        }
        assert!(!said.contains("is no netdev"), "{words}: {said}");
    }
}

#[test]
fn the_doctor_shows_the_faults_of_all_entries() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("dat.conf");
    let library = dat_tests::softrxe();
    let fine = dat_tests::line("fine", &library, "lo 0 engine=user");
    let bad = dat_tests::line("bad", Path::new("libdat-provider-sofrtxe.so.2"), "lo 0");
    let second = dat_tests::line("second", &library, "lo 0 colour=red");
    for (lines, count) in [
        (&bad, "2 entries, 1 error: "),
        (&second, "3 entries, 2 errors, the first: "),
    ] {
        let before = fs::read_to_string(&path).unwrap_or_else(|_| fine.clone());
        fs::write(&path, before + lines).expect("written");
        let examined = dat("doctor", &path);
        let said = text(&examined.stdout);
        assert_eq!(examined.status.code(), Some(1), "{said}");
        for part in [
            count,
            "FAULT   dat.conf",
            "no file \"libdat-provider-sofrtxe.so.2\"",
            "do: dat check",
        ] {
            assert!(said.contains(part), "{said} lacks {part}");
        }
        assert!(said.contains("ok      libraries "), "{said}");
    }
}

#[test]
fn a_remedy_of_dat_override_ends_the_fault() {
    let dir = tempfile::tempdir().expect("a folder");
    let missing = dir.path().join("none.conf");
    let remedy = |path: &Path| {
        let done = dat("doctor --json", path);
        let findings: Value = serde_json::from_str(&text(&done.stdout)).expect("JSON");
        let remedy = findings[0]["remedy"].as_str().map(str::to_owned);
        remedy.unwrap_or_else(|| panic!("{findings} lacks a remedy"))
    };
    let wants = format!(
        "unset DAT_OVERRIDE  # or: dat init --output {}",
        missing.display()
    );
    assert_eq!(remedy(&missing), wants);
    let nowhere = dir.path().join("no/none.conf");
    assert_eq!(remedy(&nowhere), "unset DAT_OVERRIDE");
}

#[test]
fn the_doctor_names_a_busy_port_however_the_entry_names_the_device() {
    let line = |ia, params: &str| dat_tests::line(ia, &dat_tests::softrxe(), params);
    let more = line("host", "127.88.2570 0 engine=user");
    // Another form of 127.88.10.10, which only the resolver knows.
    let (_stranger, _dir, conf) = conf("127.88.10.10", &more);
    for ia in ["taken", "host"] {
        let done = dat(&format!("doctor {ia}"), &conf);
        let said = text(&done.stdout);
        for part in [
            "FAULT   port 4791    ",
            "FAULT   open         UDP port 4791 of ",
            "security.md of the documentation",
        ] {
            assert!(said.contains(part), "{ia}: {said} lacks {part}");
        }
        assert!(said.contains("ok      device "), "{ia}: {said}");
        assert!(!said.contains("docs/"), "{ia}: {said}");
        assert_eq!(done.status.code(), Some(1), "{ia}");
    }
}

#[test]
fn a_library_whose_name_is_nearly_right_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("dat.conf");
    let library = dir.path().join("libdat-provider-softrxe.so.2");
    std::os::unix::fs::symlink(dat_tests::softrxe(), &library).expect("a link");
    let whole = dir.path().join("libdat-provider-sofrtxe.so.2");
    let line = |ia, library: &Path| dat_tests::line(ia, library, "lo 0 engine=user");
    let lines = [
        line("slip", Path::new("libdat-provider-sofrtxe.so.2")),
        line("number", Path::new("libdat-provider-softrxe.so.3")),
        line("path", &whole),
        line("other", Path::new("libmine.so")),
    ];
    fs::write(&path, lines.concat()).expect("written");
    for ia in ["slip", "number", "path", "other"] {
        for words in [format!("info {ia}"), format!("doctor {ia}")] {
            let done = dat(&words, &path);
            let said = text(&done.stdout) + &text(&done.stderr);
            assert!(!done.status.success(), "{words}: {said}");
            let named = match ia {
                "other" => None,
                "path" => Some(library.display().to_string()),
                _ => Some("libdat-provider-softrxe.so.2".to_owned()),
            };
            let hint = named.map(|name| format!("; did you mean {name:?}?"));
            assert_eq!(
                said.contains("did you mean"),
                hint.is_some(),
                "{words}: {said}"
            );
            assert!(said.contains(&hint.unwrap_or_default()), "{words}: {said}");
            // Its own folders are named, and those of every machine are not.
            assert_eq!(said.matches("no file ").count(), 1, "{words}: {said}");
            assert!(!said.contains("x86_64-linux-gnu,"), "{words}: {said}");
        }
    }
}

#[test]
fn each_remedy_of_the_doctor_is_a_command_for_the_shell() {
    let line = |ia, library: &str, params: &str| {
        format!("{ia} u2.0 threadsafe default {library} t.1.0 \"{params}\" \"\"\n")
    };
    let softrxe = dat_tests::softrxe();
    let more = [
        line("gone", "/no/such/library.so", ""),
        line("wrong", &softrxe.display().to_string(), "lo 0 colour=red"),
        line(
            "kernel",
            &softrxe.display().to_string(),
            "lo 0 engine=kernel lanes=2",
        ),
        line("port", &softrxe.display().to_string(), "lo 2 engine=user"),
    ];
    let (_stranger, _dir, conf) = conf("127.88.10.4", &more.concat());
    for (ia, check, wants) in [
        ("taken", "open", "ss -ulpn"),
        ("absent", "open", "dat devices; dat init"),
        ("gone", "library", "${EDITOR:-vi} "),
        ("wrong", "entry", "${EDITOR:-vi} "),
        ("kernel", "entry", "${EDITOR:-vi} "),
        ("port", "open", "${EDITOR:-vi} "),
        ("nothing", "entry", "dat list; dat devices"),
    ] {
        let done = dat(&format!("doctor {ia} --json"), &conf);
        let findings: Value = serde_json::from_str(&text(&done.stdout)).expect("JSON");
        let findings = findings.as_array().expect("findings");
        let remedies = findings.iter().filter(|f| f["state"] != "ok");
        for finding in remedies {
            let remedy = finding["remedy"].as_str().expect("a remedy");
            let read = Command::new("sh").args(["-n", "-c", remedy]).status();
            assert!(read.expect("sh runs").success(), "{finding}");
        }
        let found = findings
            .iter()
            .find(|f| f["check"] == check && f["state"] == "fault");
        let remedy = found.and_then(|f| f["remedy"].as_str()).unwrap_or_default();
        assert!(remedy.starts_with(wants), "{ia}: {findings:?}");
        let twice = |f: &&Value| f["check"] == check && f["state"] == "ok";
        assert!(!findings.iter().any(|f| twice(&f)), "{ia}: {findings:?}");
        let of_user = findings.iter().filter_map(|f| f["text"].as_str());
        let of_user = of_user.filter(|text| text.contains("the user engine needs none"));
        assert!(ia != "kernel" || of_user.count() == 0, "{findings:?}");
    }
}
