//! What an administrator reads after each of the usual mistakes: from `dat check`, from `dat info`, and from Debian's unmodified dtest.
//! `DAT_BLESS=1` writes the table of docs/mistakes.md; without it the test compares.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One mistake.
struct Mistake {
    what: &'static str,
    /// Contents of the file.
    text: Vec<u8>,
    /// Name of the file.
    file: &'static str,
    /// Name that the programs ask for.
    ia: String,
}

const PAGE: &str = "docs/mistakes.md";
const LIBRARY: &str = "libdat-provider-softrxe.so.2";

/// Returns a line for the IA `a`, with one field replaced.
fn line(field: usize, with: &str) -> String {
    let mut words = [
        "a",
        "u2.0",
        "threadsafe",
        "default",
        LIBRARY,
        "dat.1.0",
        "\"lo 0 engine=user\"",
        "\"\"",
    ];
    words[field] = with;
    words.join(" ") + "\n"
}

fn good() -> String {
    line(0, "a")
}

fn params(text: &str) -> String {
    line(6, &format!("\"{text}\""))
}

fn table(rows: &str) -> String {
    format!("[[ia]]\nname = \"a\"\nlibrary = \"{LIBRARY}\"\n{rows}\n")
}

fn mistakes() -> Vec<Mistake> {
    let of = |what, text: &[u8], file, ia: &str| Mistake {
        what,
        text: text.to_vec(),
        file,
        ia: ia.to_owned(),
    };
    let classic = |what, text: String| of(what, text.as_bytes(), "dat.conf", "a");
    let toml = |what, text: String| of(what, text.as_bytes(), "dat.toml", "a");
    let utf16: Vec<u8> = [0xFF, 0xFE]
        .into_iter()
        .chain(good().bytes().flat_map(|b| [b, 0]))
        .collect();
    let long = "n".repeat(300);
    vec![
        of("the file is not there", b"", "missing", "a"),
        of("the file is a FIFO", b"", "fifo", "a"),
        of("`DAT_OVERRIDE=` is empty", good().as_bytes(), "empty", "a"),
        of(
            "a name that is not there",
            good().as_bytes(),
            "dat.conf",
            "mlx4_0",
        ),
        of(
            "a misspelt name",
            line(0, "softrxe").as_bytes(),
            "dat.conf",
            "softrex",
        ),
        of(
            "a name of 300 characters",
            line(0, &long).as_bytes(),
            "dat.conf",
            &long,
        ),
        classic("a byte order mark", format!("\u{FEFF}{}", good())),
        classic("lines that end with CR LF", good().replace('\n', "\r\n")),
        of("UTF-16", &utf16, "dat.conf", "a"),
        of(
            "a byte of Latin-1 in a comment",
            &[b"# gr\xFC\xDFe\n", good().as_bytes()].concat(),
            "dat.conf",
            "a",
        ),
        of(
            "a byte of Latin-1 in a name",
            &[b"\xE4", good().as_bytes()].concat(),
            "dat.conf",
            "a",
        ),
        classic("a quote that is not closed", line(7, "\"")),
        classic("text behind a quote", line(7, "\"\"x")),
        classic("typographic quotes", line(6, "“lo 0 engine=user”")),
        classic("single quotes", line(6, "'lo 0 engine=user'")),
        classic("commas between fields", good().replace(' ', ", ")),
        classic(
            "a line that a backslash continues",
            good().replace(" \"lo", " \\\n  \"lo"),
        ),
        classic("seven fields", good().replace("u2.0 ", "")),
        classic("nine fields: parameters without quotes", line(6, "lo 0")),
        classic("a misspelt word for thread safety", line(2, "threadsave")),
        classic("a misspelt `default`", line(3, "defualt")),
        classic("an API version without `u`", line(1, "2.0")),
        classic("an API version that does not exist", line(1, "u3.0")),
        classic("a kernel-level entry", line(1, "k2.0")),
        classic("a u1.2 entry, and a program of 2.0", line(1, "u1.2")),
        classic("a provider version without vendor", line(5, "2.0")),
        classic("a library that is not there", line(4, "libno-such.so.2")),
        classic("a library in `$HOME`", line(4, "$HOME/lib/p.so")),
        classic("a library in `~`", line(4, "~/lib/p.so")),
        classic("a library for another machine", line(4, "lib/foreign.so")),
        classic("a library that is a text file", line(4, "lib/text.so")),
        classic("a library that is no provider", line(4, "libm.so.6")),
        classic("an unknown setting", params("lo 0 engine=user mut=1024")),
        classic(
            "a setting with an impossible value",
            params("lo 0 engine=user mtu=1500"),
        ),
        classic(
            "a setting twice",
            params("lo 0 engine=user retry=1 retry=2"),
        ),
        classic(
            "a setting with `~`",
            params("lo 0 engine=user pcap=~/dat.pcap"),
        ),
        classic("a port that is no number", params("lo one engine=user")),
        classic("a netdev that is not there", params("eth77 0 engine=user")),
        classic(
            "the same name twice",
            good() + &params("eth77 0 engine=user"),
        ),
        classic(
            "an alias for nothing",
            format!("alias a b\n{}", line(0, "c")),
        ),
        classic("aliases in a circle", "alias a b\nalias b a\n".to_owned()),
        classic("TOML in a file that is not named *.toml", table("")),
        toml("TOML: lines of the classic form", good()),
        toml(
            "TOML: typographic quotes",
            table("").replace("\"a\"", "“a”"),
        ),
        toml("TOML: `[ia]` behind `[[ia]]`", table("[ia]\nname = \"b\"")),
        toml("TOML: a string that is not closed", table("api = \"u2.0")),
        toml("TOML: an unknown key", table("tread_safe = true")),
        toml("TOML: no library", "[[ia]]\nname = \"a\"\n".to_owned()),
        toml("TOML: a number for a name", table("").replace("\"a\"", "7")),
        toml(
            "TOML: a string for a number",
            table("[ia.params]\ndevice = \"lo\"\nretry = \"3\""),
        ),
        toml(
            "TOML: a word that no setting has",
            table("[ia.params]\ndevice = \"lo\"\nengine = \"users\""),
        ),
    ]
}

/// A prefix with the command, the library and the provider.
struct Prefix {
    dir: tempfile::TempDir,
}

impl Prefix {
    fn new() -> Self {
        let built = dat_tests::built();
        let dir = tempfile::tempdir().expect("a folder");
        for folder in ["bin", "lib", "etc"] {
            fs::create_dir(dir.path().join(folder)).expect("a folder");
        }
        let lib = |name: &str| dir.path().join("lib").join(name);
        symlink(built.join("libdat2.so"), lib("libdat2.so.2")).expect("a link");
        symlink(built.join("libdat_provider_softrxe.so"), lib(LIBRARY)).expect("a link");
        // A copy, since the command looks beside its own file.
        fs::copy(built.join("dat"), dir.path().join("bin/dat")).expect("a copy");
        let mut foreign = vec![0; 64];
        foreign[..6].copy_from_slice(b"\x7fELF\x02\x01");
        foreign[18] = 243;
        fs::write(lib("foreign.so"), foreign).expect("written");
        fs::write(lib("text.so"), "this is no library\n").expect("written");
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the file of a mistake; returns what `DAT_OVERRIDE` names then.
    fn prepare(&self, mistake: &Mistake) -> PathBuf {
        let path = self.path(mistake.file);
        // Libraries with a slash are paths.
        let text = String::from_utf8(mistake.text.clone());
        let text =
            text.map(|t| t.replace(" lib/", &format!(" {}/lib/", self.dir.path().display())));
        let bytes = text.map_or(mistake.text.clone(), String::into_bytes);
        match mistake.file {
            "missing" => {}
            "fifo" => {
                let made = Command::new("mkfifo").arg(&path).status();
                assert!(made.expect("mkfifo runs").success());
            }
            "empty" => {
                fs::write(self.path("etc/dat.conf"), bytes).expect("written");
                return PathBuf::new();
            }
            _ => fs::write(&path, bytes).expect("written"),
        }
        path
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>, conf: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LD_LIBRARY_PATH", self.path("lib"))
            .env("DAT_OVERRIDE", conf)
            .stdin(Stdio::null());
        command
    }

    /// Returns what a subcommand of `dat` says on both outputs, and whether it succeeded.
    fn dat(&self, arguments: &[&str], conf: &Path) -> (bool, String) {
        let mut command = self.command(self.path("bin/dat"), conf);
        let done = command.args(arguments).output().expect("dat runs");
        let text = [done.stdout, done.stderr].concat();
        (
            done.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// Returns what dtest says until it has opened the IA, or ends.
    fn dtest(&self, ia: &str, conf: &Path) -> String {
        let mut command = self.command("sh", conf);
        // dtest buffers its lines unless it writes to a terminal.
        let line = "exec stdbuf -oL dtest -P \"$0\" -s 2>&1";
        let mut child = command
            .args(["-c", line, ia])
            .stdout(Stdio::piped())
            .spawn()
            .expect("dtest runs");
        let mut said = String::new();
        for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
            let line = String::from_utf8_lossy(line.expect("text").as_bytes()).into_owned();
            if line.contains("Local Address") {
                said.push_str("it opens\n");
                break;
            }
            if line.starts_with("dat: ") || line.contains("Error") {
                said += &line;
                said.push('\n');
            }
        }
        // It may have ended by itself.
        let _ = child.kill();
        let status = child.wait().expect("dtest ends");
        match status.signal().filter(|_| said.is_empty()) {
            None => said,
            // Its own array for the name is shorter.
            Some(signal) => format!("dtest is ended by its own fault, signal {signal}"),
        }
    }

    /// Returns text without what differs from machine to machine and run to run.
    fn neutral(&self, text: &str) -> String {
        let dir = self.dir.path().display().to_string();
        let text = text.replace(&format!("{dir}/"), "");
        let mut lines = Vec::new();
        for line in text.lines() {
            let mut line = line.replace(&"n".repeat(300), "nnn...");
            for (start, end) in [(" in ", "; install it"), ("there are: ", "; its entry")] {
                if let Some(at) = line.find(start)
                    && let Some(length) = line[at + start.len()..].find(end)
                {
                    line.replace_range(at + start.len()..at + start.len() + length, "...");
                }
            }
            // "dat_provider_softrxe[1234] error:" and dtest's "1234: Error"
            let line = line.trim();
            let line = line.split_once("] error: ").map_or(line, |(_, rest)| rest);
            let line = line
                .split_once(": Error ")
                .map_or(line.to_owned(), |(_, rest)| format!("Error {rest}"));
            lines.push(line);
        }
        lines.join(" / ")
    }
}

/// Returns the text as a cell of a table.
fn cell(text: &str) -> String {
    if text.is_empty() {
        return "nothing".to_owned();
    }
    format!("`{}`", text.replace('|', "\\|").replace('`', "'"))
}

#[test]
fn each_mistake_is_named_and_the_page_shows_how() {
    let have_dtest = Command::new("dtest").arg("-?").output().is_ok();
    assert!(
        have_dtest,
        "dtest is not installed: apt-get install dapl2-utils"
    );
    let mut page = String::from(
        "# What is said after a mistake\n\nWritten by `DAT_BLESS=1 cargo test -p dat-tests --test mistakes`, which compares it in every test run. Each \
         file has one mistake;\n`dat check FILE`, `dat info NAME` and Debian's unmodified `dtest -P NAME` on libdat2 ran without any \
         other variable than `DAT_OVERRIDE`. A `/` separates lines. [c-programs.md](c-programs.md) has the mistakes of programs.\n\n| mistake | `dat check` | `dat info` | dtest |\n|---|---|---|---|\n",
    );
    let mut ends: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
    let prefix = Prefix::new();
    for mistake in mistakes() {
        let conf = prefix.prepare(&mistake);
        let file = conf.display().to_string();
        let arguments = if mistake.file == "empty" {
            vec!["check"]
        } else {
            vec!["check", &file]
        };
        let (_, check) = prefix.dat(&arguments, &conf);
        let (opens, info) = prefix.dat(&["info", &mistake.ia], &conf);
        let info = if opens {
            "it opens".to_owned()
        } else {
            prefix.neutral(&info)
        };
        let dtest = prefix.dtest(&mistake.ia, &conf);
        ends.insert(mistake.what, (opens, dtest.contains("it opens")));
        // "empty" wrote the prefix's own file.
        for file in [&conf, &prefix.path("etc/dat.conf")] {
            let _ = fs::remove_file(file);
        }
        let row = [
            mistake.what.to_owned(),
            cell(&prefix.neutral(&check)),
            cell(&info),
            cell(&prefix.neutral(&dtest)),
        ];
        writeln!(page, "| {} |", row.join(" | ")).expect("a string");
    }
    // What the programs in C and Rust can open is the same.
    for (what, (rust, c)) in &ends {
        assert_eq!(rust, c, "{what}: dat info opens: {rust}, dtest opens: {c}");
    }
    assert!(ends.len() >= 30);
    let path = dat_tests::prefix::top().join(PAGE);
    if std::env::var_os("DAT_BLESS").is_some() {
        fs::write(&path, page).expect("written");
        return;
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    for (old, new) in written.lines().zip(page.lines()) {
        assert_eq!(old, new, "{PAGE}; DAT_BLESS=1 writes what is said now");
    }
    assert_eq!(written.lines().count(), page.lines().count());
}
