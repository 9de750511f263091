//! The prefix of scripts/dist.sh as a developer of C programs uses it: pkg-config, `cc ... -ldat`, from another folder
//! than it was built in. Data moves through softrxe's user engine.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// Folders of this run; `first` is the folder of dist.sh, `moved` a copy of it.
struct Prefix {
    dir: tempfile::TempDir,
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
        let dir = tempfile::tempdir().unwrap();
        // The target folder of all tests' libraries, so that nothing is built twice.
        let built = dat_tests::built();
        succeeds(
            Command::new(top().join("scripts/dist.sh"))
                .args(["--profile", "dev", "--to"])
                .arg(dir.path().join("first"))
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
        self.dir.path().join(name)
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
