//! The providers on a machine where neither libibverbs nor librdmacm is installed: a root folder with nothing in it but
//! a program, our libraries, the C library and /proc.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dat_tests::prefix::PREFIX;

/// Libraries of rdma-core.
const VERBS: [&str; 2] = ["libibverbs", "librdmacm"];

/// Returns the output of `program` if it succeeds.
fn text(program: &str, arguments: &[&OsStr]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {arguments:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns our libraries: both C libraries and both providers.
fn libraries() -> Vec<PathBuf> {
    let built = dat_tests::built();
    [
        "dat1",
        "dat2",
        "dat_provider_softrxe",
        "dat_provider_ibverbs",
    ]
    .map(|name| built.join(format!("lib{name}.so")))
    .into()
}

#[test]
fn no_library_is_linked_with_rdma_core() {
    for library in libraries() {
        let dynamic = text("readelf", &[OsStr::new("-d"), library.as_os_str()]);
        assert!(dynamic.contains("libc.so.6"), "{dynamic}");
        for verbs in VERBS {
            assert!(!dynamic.contains(verbs), "{dynamic}");
        }
    }
}

/// A root folder.
struct Root {
    dir: tempfile::TempDir,
    /// The command that runs a program in it.
    within: Vec<&'static str>,
}

impl Root {
    /// Makes a root folder with `program` and all libraries that it and ours are linked with. `None`, and the reason on
    /// stderr, if this user may not change its root folder.
    fn new(program: &Path) -> Option<Self> {
        let allowed = |command: &[&str]| {
            let tried = Command::new(command[0])
                .args(&command[1..])
                .args(["-m", "chroot", "/", "true"])
                .output();
            tried.is_ok_and(|output| output.status.success())
        };
        let within = [&["unshare"][..], &["unshare", "-r"]]
            .into_iter()
            .find(|w| allowed(w));
        let Some(within) = within else {
            dat_untested::untested("it takes root, or user namespaces (`unshare -r`)");
            return None;
        };
        let root = Self {
            dir: tempfile::tempdir().expect("a folder"),
            within: within.to_vec(),
        };
        root.copy(program, "program");
        for library in libraries() {
            let name = library
                .file_name()
                .expect("a name")
                .to_str()
                .expect("words");
            root.copy(&library, name);
        }
        std::fs::create_dir(root.path("proc")).expect("a folder");
        symlink("libdat2.so", root.path("libdat2.so.2")).expect("a link");
        Some(root)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Copies `file` to `/name`, and what it is linked with under the names that the linker looks for.
    fn copy(&self, file: &Path, name: &str) {
        std::fs::copy(file, self.path(name)).expect("a copy");
        for line in text("ldd", &[file.as_os_str()]).lines() {
            let Some(library) = line.split_whitespace().find(|word| word.starts_with('/')) else {
                continue;
            };
            if library.contains("libdat") {
                continue;
            }
            let to = self.path(&library[1..]);
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
            std::fs::copy(library, to).expect("a copy");
        }
    }

    /// Runs `/program ia` there, on an IA of `provider` with these ia_params.
    fn run(&self, provider: &str, params: &str) -> Output {
        let entry = dat_tests::line("ia", &Path::new("/").join(provider), params);
        std::fs::write(self.path("dat.conf"), entry).expect("dat.conf is written");
        let mut words = self.within.iter();
        Command::new(words.next().expect("a command"))
            .args(words)
            .args([
                "-m",
                "sh",
                "-c",
                "mount --rbind /proc $0/proc && exec chroot $0 /program ia",
            ])
            .arg(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LD_LIBRARY_PATH", "/")
            .env("DAT_OVERRIDE", "/dat.conf")
            .env("DAT_LOG", "info")
            .output()
            .expect("chroot starts")
    }
}

#[test]
fn the_user_engine_runs_and_the_kernels_names_the_package_to_install() {
    let program = PREFIX.compile("gcc", "two_endpoints.c", &["-ldat2"], "without-verbs");
    let Some(root) = Root::new(&program) else {
        return;
    };
    for verbs in VERBS {
        let found = text("find", &[root.dir.path().as_os_str()]);
        assert!(!found.contains(verbs), "{found}");
    }
    let softrxe = "libdat_provider_softrxe.so";
    for params in ["127.0.6.12 0 engine=user", "127.0.6.12 0"] {
        let done = root.run(softrxe, params);
        let words = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{params}: {words}");
        assert_eq!(done.stdout, b"two_endpoints: PASS uDAPL 2.0\n", "{words}");
    }
    for (provider, params) in [
        (softrxe, "127.0.6.12 0 engine=kernel"),
        ("libdat_provider_ibverbs.so", "eth0 0"),
    ] {
        let done = root.run(provider, params);
        let words = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success(), "{params}");
        assert!(
            words.contains("cannot load libibverbs.so.1") && words.contains("install libibverbs1"),
            "{words}"
        );
    }
}
