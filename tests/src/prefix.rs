//! An installed prefix of the C libraries and providers, and C programs compiled and run against it.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use crate::scratch::folder_of_process;

/// A prefix with the libraries under their sonames, the providers and a dat.conf.
#[derive(Debug)]
pub struct Prefix {
    dir: PathBuf,
}

/// The prefix of this process.
pub static PREFIX: LazyLock<Prefix> = LazyLock::new(Prefix::new);

/// Returns the root folder of the workspace.
#[must_use]
pub fn top() -> PathBuf {
    PathBuf::from(crate::TOP)
}

impl Prefix {
    fn new() -> Self {
        let debug = crate::built();
        let dir = folder_of_process();
        for (file, names) in [
            ("libdat1.so", &["libdat.so.1", "libdat.so"][..]),
            ("libdat2.so", &["libdat2.so.2", "libdat2.so"]),
            ("libdat_loopback_provider.so", &["loopback.so"]),
            ("libdat_provider_softrxe.so", &["softrxe.so"]),
        ] {
            for name in names {
                symlink(debug.join(file), dir.join(name)).expect("a folder to write to");
            }
        }
        let mut entries = String::new();
        for (name, api, library, params) in [
            ("loop", "u1.2", "loopback.so", "127.0.0.1 0"),
            ("loop", "u2.0", "loopback.so", "127.0.0.1 0"),
            ("classic", "u1.2", "classic-1.2.so", ""),
            ("classic", "u2.0", "classic-2.0.so", ""),
            ("user", "u1.2", "softrxe.so", "127.0.6.4 0 engine=user"),
            ("user", "u2.0", "softrxe.so", "127.0.6.4 0 engine=user"),
            ("forking", "u2.0", "softrxe.so", "127.0.6.5 0 engine=user"),
            ("ranks1", "u1.2", "softrxe.so", "127.0.6.6 0 engine=user"),
            ("ranks2", "u2.0", "softrxe.so", "127.0.6.7 0 engine=user"),
            (
                "near-client",
                "u2.0",
                "softrxe.so",
                "127.0.6.19 0 engine=user",
            ),
            (
                "near-server",
                "u2.0",
                "softrxe.so",
                "127.0.6.20 0 engine=user",
            ),
            (
                "udp2",
                "u2.0",
                "softrxe.so",
                "127.0.6.8 0 engine=user near=off",
            ),
        ] {
            let library = dir.join(library);
            let library = library.display();
            entries += &format!(
                "{name} {api} nonthreadsafe default {library} test.1.0 \"{params}\" \"\"\n"
            );
        }
        std::fs::write(dir.join("dat.conf"), entries).expect("a folder to write to");
        Self { dir }
    }

    /// Returns the path of a file of the prefix.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Compiles a C program of `tests/c`, or another folder of `tests`, against our headers and a library.
    ///
    /// # Panics
    /// If it does not compile.
    #[must_use]
    pub fn compile(&self, compiler: &str, source: &str, arguments: &[&str], name: &str) -> PathBuf {
        let program = self.path(name);
        let made = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-g", "-o"])
            .arg(&program)
            .arg("-I")
            .arg(top().join("capi/include"))
            .args(["-x", if compiler == "gcc" { "c" } else { "c++" }])
            .args(crate::c_sources(source))
            .args(["-x", "none", "-L"])
            .arg(&self.dir)
            .args(arguments)
            .output()
            .expect("a C compiler");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        program
    }

    /// Runs a program with the libraries and the dat.conf of this prefix.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn run(&self, program: &Path, arguments: &[&str]) -> Output {
        let out = self.command(program, arguments).output();
        out.expect("the program starts")
    }

    /// [`run`](Self::run), with the errors of library and provider on the program's standard error.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn logged(&self, program: &Path, arguments: &[&str]) -> Output {
        let mut command = self.command(program, arguments);
        let out = command.env("DAT_LOG", "error").output();
        out.expect("the program starts")
    }

    /// Returns the command of a program with the libraries and the dat.conf of this prefix.
    #[must_use]
    pub fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("LD_LIBRARY_PATH", &self.dir)
            .env("DAT_OVERRIDE", self.path("dat.conf"));
        command
    }

    /// Compiles the classic provider for both versions, once.
    pub fn classic(&self) {
        static MADE: std::sync::Once = std::sync::Once::new();
        MADE.call_once(|| {
            for (arguments, name) in [
                (&["-DUDAPL_1_2", "-shared", "-fPIC"][..], "classic-1.2.so"),
                (&["-shared", "-fPIC"], "classic-2.0.so"),
            ] {
                let _ = self.compile("gcc", "classic_provider.c", arguments, name);
            }
        });
    }
}
