//! The command as a user runs it.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn dat(arguments: &[&str], conf: &Path) -> Output {
    command(arguments, conf).output().expect("dat runs")
}

fn command(arguments: &[&str], conf: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command
        .args(arguments)
        .env("DAT_OVERRIDE", conf)
        .stdin(Stdio::null());
    command
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn conf(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("dat.conf");
    fs::write(&path, text).expect("written");
    (dir, path)
}

fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo runs").success());
}

const LINE: &str =
    "ofa-v2-mlx4_0-1 u2.0 nonthreadsafe default libno-such.so.2 dapl.2.0 \"mlx4_0 1\" \"\"\n";

#[test]
fn a_list_shows_every_entry_with_its_reason() {
    let old = "old u1.2 threadsafe nondefault /x/lib.so v.1.2 \"\" \"\"\nalias a old\nwrong\n";
    let (_dir, path) = conf(&format!("{LINE}{LINE}{old}"));
    let listed = dat(&["list"], &path);
    assert!(listed.status.success(), "{}", err(&listed));
    let help = out(&dat(&["list", "--help"], &path));
    let status = "0 if one entry is usable, also where others are not";
    assert!(help.contains(status), "{help} lacks {status}");
    let text = out(&listed);
    for part in [
        "ofa-v2-mlx4_0-1",
        "unsafe",
        "dat.conf:1: no file \"libno-such.so.2\" in",
        "u1.2",
        "is another name for old",
        ":5:6: the field \"API version\" is missing",
        ":2:1: warning: this entry is dead",
    ] {
        assert!(text.contains(part), "{text} lacks {part}");
    }
    let listed = dat(&["list", "--json"], &path);
    let json: Value = serde_json::from_str(&out(&listed)).expect("JSON");
    assert_eq!(json["entries"].as_array().map(Vec::len), Some(4));
    assert_eq!(json["entries"][0]["usable"], Value::Bool(false));
    assert_eq!(json["entries"][0]["line"], 1);
}

#[test]
fn the_files_of_a_folder_are_checked_as_programs_read_them() {
    let (dir, path) = conf("alias far near\n");
    let folder = dir.path().join("dat.conf.d");
    fs::create_dir(&folder).expect("a folder");
    let name = folder.to_str().expect("UTF-8").to_owned();
    let none = dat(&["check", &name], &path);
    assert_eq!(none.status.code(), Some(1));
    assert!(
        err(&none).contains("has no file that programs read"),
        "{}",
        err(&none)
    );
    let files = [
        ("20.toml", "[[ia]]\nname = 'near'\nlibrary = 'libc.so.6'\n"),
        ("10.conf", "alias a near\nalias b nowhere\n"),
        ("30.conf.rpmnew", "nonsense\n"),
        (".hidden.conf", "nonsense\n"),
    ];
    for (file, text) in files {
        fs::write(folder.join(file), text).expect("written");
    }
    let done = dat(&["check", &name], &path);
    let text = out(&done);
    assert_eq!(done.status.code(), Some(1), "{text}");
    let places = ["10.conf:2:9: the alias stands", "20.toml:3:11: "];
    for part in places {
        assert!(text.contains(part), "{text} lacks {part}");
    }
    assert!(text.contains("1 entry, 2 errors, 0 warnings"), "{text}");
    let others = "programs do not read .hidden.conf, 30.conf.rpmnew: only *.conf";
    assert!(text.contains(others), "{text}");
    let here = format!("programs do not read {name}");
    assert!(!text.contains(&here), "{text}");
    let elsewhere = dir.path().join("elsewhere.d");
    fs::rename(&folder, &elsewhere).expect("renamed");
    let name = elsewhere.to_str().expect("UTF-8");
    let done = dat(&["check", "--json", name], &path);
    let json: Value = serde_json::from_str(&out(&done)).expect("JSON");
    let notes = json["notes"].as_array().expect("an array");
    let wants = format!("programs do not read {name}: they read {}", path.display());
    assert!(
        notes[1].as_str().is_some_and(|note| note.contains(&wants)),
        "{notes:?}"
    );
}

#[test]
fn a_value_out_of_range_is_refused_with_the_option_and_what_is_allowed() {
    let (_dir, path) = conf(LINE);
    for (words, option, allowed) in [
        (
            "perf h -D 0",
            "'0' for '--duration",
            "seconds from 0.001 to 86400",
        ),
        (
            "perf h -D -1.5",
            "'-1.5' for '--duration",
            "seconds from 0.001",
        ),
        ("perf h -s -5", "'-5' for '--size", "1 to 67108864 bytes"),
        ("perf h -s 64,0", "'0' for '--size", "1 to 67108864 bytes"),
        (
            "perf h -n 0",
            "'0' for '--iterations",
            "number from 1 to 1000000000",
        ),
        (
            "perf h -q 1e3",
            "'1e3' for '--connections",
            "number from 1 to 1024",
        ),
        ("perf h -t -1", "'-1' for '--depth", "number from 1 to 4096"),
        ("perf h -p -1", "'-1' for '--port", "number from 1 to "),
        ("ping h -c -1", "'-1' for '--count", "number from 0 to "),
        (
            "ping h -i -2",
            "'-2' for '--interval",
            "seconds from 0 to 86400",
        ),
        (
            "fault a -s 9223372036854775808 -- true",
            "'9223372036854775808' for '--seed",
            "number from 0 to 9223372036854775807",
        ),
        ("serve -p 0", "'0' for '--port", "number from 1 to "),
        (
            "counters a -w --interval 0",
            "'0' for '--interval",
            "seconds from 0.01 to 86400",
        ),
        ("counters a --count 3", "--watch", "Usage: "),
    ] {
        let arguments: Vec<&str> = words.split(' ').collect();
        let done = dat(&arguments, &path);
        assert_eq!(done.status.code(), Some(2), "{words}");
        for part in [option, allowed] {
            assert!(err(&done).contains(part), "{words}: {}", err(&done));
        }
    }
}

#[test]
fn no_panic_where_the_output_ends() {
    let (_dir, path) = conf(&LINE.repeat(2000));
    for arguments in [
        &["list"][..],
        &["check"],
        &["devices"],
        &["init"],
        &["--help"],
        &["completions", "bash"],
    ] {
        let full = File::options()
            .write(true)
            .open("/dev/full")
            .expect("/dev/full");
        let done = command(arguments, &path)
            .stdout(full)
            .output()
            .expect("dat runs");
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {}", err(&done));
        assert!(
            err(&done).contains("No space left"),
            "{arguments:?}: {}",
            err(&done)
        );
    }
    let mut child = command(&["list"], &path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dat runs");
    drop(child.stdout.take());
    let done = child.wait_with_output().expect("dat ends");
    assert_eq!((done.status.code(), err(&done).as_str()), (Some(141), ""));
}

#[test]
fn a_check_names_file_line_and_column_and_its_status_tells() {
    let (dir, path) = conf(&format!("\u{FEFF}# caf\u{e9}\r\n{LINE}"));
    let done = dat(&["check"], &path);
    assert_eq!(done.status.code(), Some(1));
    let text = out(&done);
    for part in [
        ":1:1: warning: a byte order mark",
        ":2:44: no file \"libno-such.so.2\"",
        "1 entry, 1 error, 2 warnings",
    ] {
        assert!(text.contains(part), "{text} lacks {part}");
    }
    let toml = dir.path().join("x.toml");
    fs::write(&toml, "[[ia]]\nname = 'a'\nlibary = 'l'\n").expect("written");
    let done = dat(&["check", "--json", toml.to_str().expect("UTF-8")], &path);
    let json: Value = serde_json::from_str(&out(&done)).expect("JSON");
    let finding = &json["findings"][0];
    assert_eq!(
        (&finding["line"], &finding["column"]),
        (&3.into(), &1.into())
    );
    assert!(
        finding["message"]
            .as_str()
            .is_some_and(|m| m.contains("did you mean \"library\""))
    );
    // Standard input, and two files of which one is not there.
    let mut child = command(&["check", "-"], &path);
    child.stdin(File::open(&path).expect("the file"));
    assert!(out(&child.output().expect("dat runs")).contains("stdin:2:44"));
    let done = dat(&["check", "/no/such/file"], &path);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        err(&done).contains("/no/such/file: No such file"),
        "{}",
        err(&done)
    );
    let fifo = dir.path().join("fifo");
    make_fifo(&fifo);
    let done = dat(&["check", fifo.to_str().expect("UTF-8")], &path);
    assert!(err(&done).contains("FIFO"), "{}", err(&done));
}

#[test]
fn a_check_takes_the_files_of_a_configuration_together() {
    let (dir, path) = conf("here u2.0 threadsafe default libm.so.6 dapl.2.0 \"\" \"\"\n");
    let site = dir.path().join("dat.conf.d/10-site.conf");
    fs::create_dir_all(site.with_file_name("20-folder.conf")).expect("made");
    fs::write(&site, "alias there here\nalias lost nowhere\n").expect("written");
    for (arguments, unreadable) in [
        (&["check"][..], true),
        (&["check", site.to_str().expect("text")], false),
    ] {
        let checked = dat(arguments, &path);
        let text = out(&checked);
        assert!(!text.contains("\"here\""), "{text}");
        assert!(
            text.contains("10-site.conf:2:12: the alias stands for \"nowhere\""),
            "{text}"
        );
        let folder = text.contains("20-folder.conf: this cannot be read: it is a folder");
        assert_eq!(folder, unreadable, "{text}");
        assert!(!checked.status.success(), "{text}");
    }
    let listed = out(&dat(&["list"], &path));
    assert!(
        listed.contains("there") && listed.contains("20-folder.conf"),
        "{listed}"
    );
    let examined = out(&dat(&["doctor", "there"], &path));
    assert!(examined.contains("dat check"), "{examined}");
}

/// With the entries of both, a file would be named twice in messages about what it lacks.
#[test]
fn a_file_that_is_named_by_another_path_is_read_once() {
    let filter = "f u2.0 threadsafe default libdat-provider-filter.so.2 dapl.2.0 \"filter=trace inner=none\" \"\"\n";
    let (dir, path) = conf(filter);
    let other = dir.path().join("link.conf");
    std::os::unix::fs::symlink(&path, &other).expect("a link");
    let checked = dat(&["check", other.to_str().expect("text")], &path);
    let text = out(&checked);
    assert!(text.contains("link.conf has no IA \"none\""), "{text}");
    assert!(!text.contains("/dat.conf"), "{text}");
}

#[test]
fn an_ia_that_this_machine_cannot_have_is_not_usable_and_equal_faults_are_one_line() {
    let line = |ia: &str, library: &str, params: &str| {
        format!("{ia} u2.0 threadsafe default {library} dapl.2.0 \"{params}\" \"\"\n")
    };
    let text: String = [
        line("far", "libm.so.6", "192.0.2.77 0"),
        line("slash", "libm.so.6", "127.0.0.1/8 0"),
        line("colon", "libm.so.6", "eth0:1 0"),
        LINE.to_owned(),
        LINE.replace("mlx4_0-1", "mlx4_0-2"),
    ]
    .concat();
    let (_dir, path) = conf(&text);
    let listed = dat(&["list"], &path);
    assert!(!listed.status.success());
    assert!(out(&listed).contains("0 of 5 usable"), "{}", out(&listed));
    let checked = out(&dat(&["check"], &path));
    assert_eq!(checked.matches("libno-such.so.2").count(), 1, "{checked}");
    assert!(checked.contains("; also on line 5"), "{checked}");
    for command in ["ping", "perf"] {
        let said = dat(&[command, "far"], &path);
        let hint = format!("the host is missing: dat {command} far HOST");
        assert!(err(&said).contains(&hint), "{}", err(&said));
        assert_eq!(said.status.code(), Some(2), "a wrong command line");
    }
    let unknown = dat(&["info", "nosuch", "--json"], &path);
    let value: Value = serde_json::from_str(&out(&unknown)).expect("JSON");
    assert!(
        value["error"]
            .as_str()
            .is_some_and(|e| e.contains("nosuch")),
        "{value}"
    );
}

#[test]
fn a_check_names_settings_that_have_no_effect() {
    let line = |ia: &str, params: &str| dat_tests::line(ia, &dat_tests::softrxe(), params);
    let (_dir, path) = conf(&line("a", "lo 0 engine=user lanes=4 near=copy pcap=/tmp/x"));
    let checked = dat(&["check"], &path);
    let text = out(&checked);
    let library = dat_tests::softrxe().display().to_string();
    // Behind the name, four words, the library and the provider's version.
    let params = "a u2.0 threadsafe default ".len() + library.len() + " t.1.0 \"".len();
    for (key, at) in [("lanes", 17), ("near", 25)] {
        let column = params + at + 1;
        let wants = format!("dat.conf:1:{column}: warning: {key} has no effect beside pcap");
        assert!(text.contains(&wants), "{text} lacks {wants}");
    }
    assert!(checked.status.success(), "{text}");
    assert!(!dat(&["check", "--strict"], &path).status.success());
    let listed = out(&dat(&["list"], &path));
    let wants = "1 of 1 usable, as far as that shows without opening them (`dat list --open`)";
    assert!(listed.contains(wants), "{listed}");
    let opened = out(&dat(&["list", "--open"], &path));
    assert!(opened.trim_end().ends_with(" of 1 usable"), "{opened}");
    let (_dir, path) = conf(&line("a", "lo 0 engine=kernel lanes=4"));
    let checked = dat(&["check"], &path);
    let text = out(&checked);
    let wants = "lanes is not possible with engine=kernel, only with engine=user";
    assert!(text.contains(wants), "{text} lacks {wants}");
    assert!(!checked.status.success());
}

#[test]
fn aliases_convert_with_their_order_and_the_first_of_a_name() {
    let aliases = "alias zebra-* a\nalias * b\nalias \"soft\u{ad}hyphen\" a\nalias it's a\n";
    let (dir, path) = conf(&format!("{aliases}alias zebra-* b\nalias it's b\n"));
    let toml = dir.path().join("new.toml");
    let to = toml.to_str().expect("UTF-8");
    let done = dat(&["convert", "-o", to], &path);
    assert!(done.status.success(), "{}", err(&done));
    let back = dat(&["convert", to], &path);
    assert!(back.status.success(), "{}", err(&back));
    assert_eq!(out(&back), aliases.replace('"', ""));
}

#[test]
fn a_file_converts_both_ways() {
    let text = format!(
        "{LINE}b u1.2 threadsafe nondefault \"/x y/l.so\" v.1.2 \"lo 0 mtu=1024\" \"p\"\nalias c b\n"
    );
    let (dir, path) = conf(&text);
    let toml = dir.path().join("new.toml");
    let to = toml.to_str().expect("UTF-8");
    let done = dat(&["convert", "-o", to], &path);
    assert!(done.status.success(), "{}", err(&done));
    let back = dat(&["convert", to], &path);
    assert_eq!(
        out(&back),
        text,
        "{}",
        fs::read_to_string(&toml).expect("written")
    );
    let again = dat(&["convert", "-o", to], &path);
    assert!(
        !again.status.success() && err(&again).contains("exists; --force"),
        "{}",
        err(&again)
    );
    let link = dir.path().join("link.toml");
    std::os::unix::fs::symlink("new.toml", &link).expect("a link");
    fs::write(&toml, "# old").expect("written");
    let through = link.to_str().expect("UTF-8");
    let done = dat(&["convert", "--force", "-o", through], &path);
    assert!(done.status.success(), "{}", err(&done));
    assert!(link.is_symlink());
    assert_ne!(fs::read_to_string(&toml).expect("written"), "# old");
    // A socket, in the place of a device, and a link that leads nowhere.
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let dangling = dir.path().join("dangling");
    std::os::unix::fs::symlink("missing", &dangling).expect("a link");
    for special in [&socket, &dangling] {
        let to = special.to_str().expect("UTF-8");
        let done = dat(&["convert", "--force", "-o", to], &path);
        assert!(err(&done).contains("is no regular file"), "{}", err(&done));
        assert!(!done.status.success() && !special.is_file());
    }
    let to_nowhere = dat(&["convert", "-o", "/no/such/folder/x.toml"], &path);
    assert!(
        err(&to_nowhere).contains("cannot write /no/such/folder/x.toml: No such file"),
        "{}",
        err(&to_nowhere)
    );
}

#[test]
fn a_new_configuration_has_no_fault_of_its_form() {
    let (dir, path) = conf("");
    for name in ["a.conf", "b.toml"] {
        let new = dir.path().join(name);
        let done = dat(&["init", "-o", new.to_str().expect("UTF-8")], &path);
        assert!(done.status.success(), "{}", err(&done));
        let listed = dat(&["list", "--json"], &new);
        let json: Value = serde_json::from_str(&out(&listed)).expect("JSON");
        assert_eq!(json["faults"], serde_json::json!([]));
        let entries = json["entries"].as_array().expect("entries");
        assert!(
            entries
                .iter()
                .any(|e| e["name"] == "softrxe-lo" && e["api"] == "u1.2"),
            "{json}"
        );
    }
    // `-` is standard output for all commands.
    for words in [
        "init -o -",
        "convert dat.conf -o -",
        "report absent -o - --without devices --without conform --without perf",
    ] {
        let arguments: Vec<&str> = words.split(' ').collect();
        let mut command = command(&arguments, &path);
        let done = command.current_dir(dir.path()).output().expect("dat runs");
        assert!(done.status.success(), "{words}: {}", err(&done));
        let printed = out(&done);
        assert!(
            !printed.contains("IAs; `DAT_OVERRIDE"),
            "{words}: {printed}"
        );
        let is_json = serde_json::from_str::<Value>(&printed).is_ok();
        assert_eq!(is_json, words.starts_with("report"), "{words}: {printed}");
    }
    assert!(
        dir.path().read_dir().expect("a folder").count() == 3,
        "nothing else is left behind"
    );
}

#[test]
fn pages_and_errors_of_the_command_line() {
    let (dir, path) = conf("");
    let folder = dir.path().join("man");
    let done = dat(&["man", folder.to_str().expect("UTF-8")], &path);
    assert!(done.status.success(), "{}", err(&done));
    let page = fs::read_to_string(folder.join("dat-check.1")).expect("a page");
    assert!(
        page.contains(".TH") && page.contains("standard input"),
        "{page}"
    );
    let done = dat(&["lst"], &path);
    assert_eq!(done.status.code(), Some(2));
    assert!(err(&done).contains("'list'"), "{}", err(&done));
    assert!(out(&dat(&["--version"], &path)).starts_with("dat 0."));
    let help = out(&dat(&["--help"], &path));
    assert!(help.contains("3 if dat conform"), "{help}");
    let done = dat(&["info", "nothing"], &path);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        err(&done).contains("dat.conf has no IA \"nothing\""),
        "{}",
        err(&done)
    );
    let doctor = dat(&["doctor", "nothing", "--json"], &path);
    let json: Value = serde_json::from_str(&out(&doctor)).expect("JSON");
    let faults = json
        .as_array()
        .expect("findings")
        .iter()
        .filter(|f| f["state"] == "fault");
    assert!(
        faults.into_iter().all(|f| f["remedy"].is_string()),
        "{json}"
    );
    assert_eq!(doctor.status.code(), Some(1));
}

/// Returns the JSON that a command prints.
fn json(arguments: &[&str], conf: &Path) -> (Option<i32>, Value) {
    let done = dat(arguments, conf);
    let value = serde_json::from_str(&out(&done));
    (
        done.status.code(),
        value.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", err(&done))),
    )
}

#[test]
fn what_is_written_is_described_as_json() {
    let (dir, path) = conf(&format!(
        "# a comment\n{LINE}alias b ofa-v2-mlx4_0-1\nwrong\n"
    ));
    let (status, value) = json(&["convert", "--json"], &path);
    assert_eq!(status, Some(1), "one line is faulty");
    assert_eq!(
        (&value["entries"], &value["aliases"]),
        (&1.into(), &1.into())
    );
    assert_eq!(value["comments_left_out"], 1);
    let left_out = value["left_out"][0].as_str().expect("a message");
    assert!(
        left_out.contains(":4:6: the field \"API version\" is missing"),
        "{value}"
    );
    assert!(
        value["text"]
            .as_str()
            .is_some_and(|text| text.contains("[[ia]]"))
    );
    let new = dir.path().join("new.conf");
    let to = new.to_str().expect("UTF-8");
    let (status, value) = json(&["init", "--json", "-o", to], &path);
    assert_eq!((status, &value["file"]), (Some(0), &to.into()));
    let ias = value["ias"].as_array().expect("names");
    assert!(ias.contains(&"softrxe-lo".into()), "{value}");
    let text = fs::read_to_string(&new).expect("written");
    let (_, printed) = json(&["init", "--json"], &path);
    assert_eq!(printed["text"].as_str(), Some(text.as_str()));
    assert_eq!(printed["ias"], value["ias"]);
    let again = dat(&["init", "--json", "-o", to], &path);
    let value: Value = serde_json::from_str(&out(&again)).expect("JSON");
    assert_eq!(again.status.code(), Some(1));
    assert!(
        value["error"]
            .as_str()
            .is_some_and(|e| e.contains("exists; --force")),
        "{value}"
    );
    assert!(err(&again).contains("exists; --force"), "{}", err(&again));
}

#[test]
fn what_cannot_be_converted_is_named_with_a_remedy_that_helps() {
    let (dir, path) = conf(LINE);
    let fifo = dir.path().join("fifo");
    make_fifo(&fifo);
    let convert = |file: &Path| err(&dat(&["convert", &file.display().to_string()], &path));
    let said = convert(&fifo);
    assert!(said.contains("pipe it into `dat convert -`"), "{said}");
    let said = convert(dir.path());
    assert!(
        said.contains("it is a folder") && !said.contains("pipe"),
        "{said}"
    );
}

#[test]
fn standard_input_is_taken_whole_or_not_at_all() {
    use std::io::Write as _;
    let (_dir, path) = conf(LINE);
    let mut check = command(&["check", "-"], &path);
    let piped = check.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("dat runs");
    let mut input = child.stdin.take().expect("a pipe");
    // The fault is in the part that is too much. The command may end before it has all.
    let _ = input.write_all(format!("#{}\nwrong\n", "x".repeat(16 << 20)).as_bytes());
    drop(input);
    let checked = child.wait_with_output().expect("it ends");
    assert_eq!(checked.status.code(), Some(1));
    let said = err(&checked);
    assert!(
        said.contains("standard input has more than 16 MiB"),
        "{said}"
    );
}
