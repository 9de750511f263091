//! The prefix of scripts/dist.sh as a developer of C programs uses it: pkg-config, `cc ... -ldat`, from another folder
//! than it was built in; and the README's commands. Data moves through softrxe's user engine.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::LazyLock;

use dat_tests::scratch::folder_of_process;

/// Folders of this run; `first` is the folder of dist.sh, `moved` a copy of it.
struct Prefix {
    dir: PathBuf,
}

static PREFIX: LazyLock<Prefix> = LazyLock::new(Prefix::new);

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn succeeds(command: &mut Command) -> String {
    let done = command.output().expect("it starts");
    assert!(
        done.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).into_owned()
}

impl Prefix {
    fn new() -> Self {
        let dir = folder_of_process();
        // The target folder of all tests' libraries, so that nothing is built twice.
        let built = dat_tests::built();
        succeeds(
            Command::new(top().join("scripts/dist.sh"))
                .args(["--profile", "dev", "--to"])
                .arg(dir.join("first"))
                .env("CARGO_TARGET_DIR", built.parent().unwrap())
                .env("CARGO_NET_OFFLINE", "true"),
        );
        succeeds(
            Command::new("cp")
                .args(["-r", "first", "moved"])
                .current_dir(&dir),
        );
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Runs a line of shell, in which pkg-config finds only the prefix `which`.
    fn shell(&self, line: &str, which: &str) -> String {
        succeeds(
            Command::new("sh")
                .args(["-ec", line])
                .env("PKG_CONFIG_LIBDIR", self.path(which).join("lib/pkgconfig"))
                .current_dir(top().join("tests/c")),
        )
    }

    /// Runs a program with the libraries and providers of the prefix `which`, over an IA called `ia` of both versions.
    fn run(&self, program: &Path, which: &str, address: &str) -> Output {
        let conf = self.path(&format!("{address}.conf"));
        let entries: String = ["u1.2", "u2.0"]
            .iter()
            .map(|api| {
                format!(
                    "ia {api} nonthreadsafe default libdat-provider-softrxe.so.2 dat.2.0 \"{address} 0 engine=user\" \"\"\n"
                )
            })
            .collect();
        std::fs::write(&conf, entries).unwrap();
        Command::new(program)
            .arg("ia")
            .env("LD_LIBRARY_PATH", self.path(which).join("lib"))
            .env("DAT_OVERRIDE", conf)
            .output()
            .unwrap()
    }
}

#[test]
fn pkg_config_names_what_a_program_needs_wherever_the_prefix_is() {
    for which in ["first", "moved"] {
        for (package, define, version) in [("dat2", "", "2.0"), ("dat", "-DUDAPL_1_2", "1.2")] {
            let program = PREFIX.path(&format!("{which}-{package}"));
            PREFIX.shell(
                &format!(
                    "gcc -Wall -Wextra -Werror {define} two_endpoints.c -o {} $(pkg-config --cflags --libs {package})",
                    program.display()
                ),
                which,
            );
            let flags = PREFIX.shell(&format!("pkg-config --cflags --libs {package}"), which);
            let here = PREFIX.path(which);
            assert!(
                flags.contains(&*here.to_string_lossy()),
                "{flags} name another folder"
            );
            let out = PREFIX.run(&program, which, "127.0.6.10");
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            let words = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(out.status.success(), "{which} {package}: {words}");
            assert_eq!(said, format!("two_endpoints: PASS uDAPL {version}\n"));
        }
    }
}

/// The example in C, where it is installed, built by its Makefile with all warnings as errors. Its run path leads to the library of the
/// prefix, also where the system has one of the same name.
#[test]
fn the_example_in_c_is_installed_builds_and_moves_data_between_two_processes() {
    let program = PREFIX.path("moved/share/doc/dat/examples/c/exchange");
    let folder = program.parent().unwrap().display();
    PREFIX.shell(
        &format!("make -C {folder} CFLAGS='-O2 -Wall -Wextra -Wpedantic -Werror'"),
        "moved",
    );
    let conf = PREFIX.path("exchange.conf");
    let line = "ia u2.0 threadsafe default libdat-provider-softrxe.so.2 dat.2.0 \"127.0.6.13 0 engine=user\" \"\"\n";
    std::fs::write(&conf, line).unwrap();
    let end = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .env_remove("LD_LIBRARY_PATH")
            .env("DAT_OVERRIDE", &conf);
        command
    };
    let server = end(&["ia", "server"]).stdout(Stdio::piped()).spawn();
    let mut server = server.expect("it starts");
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    let listens = line();
    let at: Vec<&str> = listens.split_whitespace().collect();
    assert_eq!(at[..2], ["listens", "127.0.6.13"]);
    let said = succeeds(&mut end(&["ia", "client", at[1], at[2]]));
    assert_eq!(said, "the server answered \"thank you\"\n");
    let written = line();
    assert_eq!(
        written,
        "the client wrote \"written by RDMA\" and said \"look\""
    );
    assert!(server.wait().unwrap().success(), "the end is orderly");
    for (address, qualifier, reason) in [
        (at[1], at[2], "nothing listens there"),
        (at[1], "4x", "not a connection qualifier: 4x"),
        (
            "::1",
            at[2],
            "DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNSUPPORTED",
        ),
    ] {
        let refused = end(&["ia", "client", address, qualifier]).output();
        let words = String::from_utf8_lossy(&refused.unwrap().stderr).into_owned();
        assert!(words.contains(reason), "{words}");
    }
}

#[test]
fn each_header_compiles_alone_in_the_oldest_and_newest_standards() {
    let include = PREFIX.path("first/include").display().to_string();
    for folder in ["dat", "dat2"] {
        for header in std::fs::read_dir(PREFIX.path("first/include").join(folder)).unwrap() {
            let header = header.unwrap().file_name().into_string().unwrap();
            for compiler in [
                "gcc -x c -std=c89",
                "gcc -x c -std=c17",
                "g++ -x c++ -std=c++98",
                "g++ -x c++ -std=c++20",
            ] {
                PREFIX.shell(
                    &format!(
                        "printf '#include <{folder}/{header}>\\ntypedef int not_empty;\\n' | {compiler} -Wall -Wextra -pedantic -Werror -fsyntax-only -I{include} -"
                    ),
                    "first",
                );
            }
        }
    }
}

#[test]
fn the_synopses_of_the_manual_pages_compile_link_and_run() {
    for (compiler, standards) in [
        ("gcc -x c", &["c99", "c11", "gnu17"][..]),
        ("g++ -x c++", &["c++11", "c++17"]),
    ] {
        for standard in standards {
            for (library, define) in [("dat", "-DUDAPL_1_2"), ("dat2", "")] {
                let program = PREFIX.path(&format!("synopses-{standard}-{library}"));
                PREFIX.shell(
                    &format!(
                        "{compiler} -std={standard} -Wall -Wextra -pedantic -Werror {define} -I{0}/include synopses.c -o {1} -L{0}/lib -l{library}",
                        PREFIX.path("first").display(),
                        program.display()
                    ),
                    "first",
                );
                let out = PREFIX.run(&program, "first", "127.0.6.11");
                assert!(
                    out.status.success(),
                    "{standard} {library}: line {:?} of synopses.c: {}",
                    out.status.code(),
                    String::from_utf8_lossy(&out.stderr)
                );
            }
        }
    }
}

/// A process that is killed at the end of the test.
struct Server(Child, BufReader<ChildStdout>);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the README's lines of shell that use what `make dist` wrote.
fn commands_of_the_readme() -> Vec<String> {
    let text = std::fs::read_to_string(top().join("README.md")).unwrap();
    let blocks = text.split("```").skip(1).step_by(2);
    let lines = blocks
        .filter_map(|b| b.strip_prefix("sh\n"))
        .flat_map(str::lines);
    lines
        .filter(|l| l.contains("target/dist/"))
        .filter(|l| !l.starts_with("make "))
        .map(|l| l.split('#').next().unwrap().trim().to_owned())
        .collect()
}

/// Starts a server and waits until it prints `word`.
fn serve(command: &mut Command, word: &str) -> Server {
    let server = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut server = server.spawn().unwrap();
    let out = BufReader::new(server.stdout.take().unwrap());
    // Its output stays open as long as it runs.
    let mut server = Server(server, out);
    let mut said = String::new();
    for line in server.1.by_ref().lines().map_while(Result::ok) {
        said += &line;
        said.push('\n');
        if line.contains(word) {
            return server;
        }
    }
    panic!("it never says {word:?}: {said}");
}

#[test]
fn the_commands_of_the_readme_run() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("target")).unwrap();
    std::os::unix::fs::symlink(PREFIX.path("first"), folder.path().join("target/dist")).unwrap();
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-ec", line]).current_dir(folder.path());
        command
            .env_remove("DAT_OVERRIDE")
            .env_remove("LD_LIBRARY_PATH");
        command
    };
    let _peer = serve(
        &mut shell("exec target/dist/bin/dat serve softrxe-lo"),
        "softrxe-lo",
    );
    let commands = commands_of_the_readme();
    assert!(commands.len() >= 8, "{commands:?}");
    for command in commands {
        let command = command.replace("HOST", "127.0.0.1");
        if command.contains("dtest") {
            // Dtest buffers its lines unless it writes to a terminal.
            let line = command.replace(" dtest ", " stdbuf -oL dtest ");
            serve(&mut shell(&line), "Local Address");
        } else {
            succeeds(&mut shell(&command));
        }
    }
}
