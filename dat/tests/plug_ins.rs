//! Provider libraries are found beside the executable, in its prefix, beside dat.conf, and where the dynamic loader looks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In the environment of a child: it opens the adapter and prints the error.
const CHILD: &str = "UDAPL_TEST_PLUG_INS";

/// A library that has a provider's init, which registers nothing: the error then says that it was loaded.
const SOURCE: &str = "void dat_provider_init(const void *info, const char *parameters) {}\n\
                      void dat_provider_fini(const void *info) {}\n";

#[test]
fn child() {
    if std::env::var_os(CHILD).is_some() {
        let error = udapl::Ia::open("plugged").expect_err("there is no such adapter");
        println!("error: {error}");
    }
}

/// A folder with a copy of this program in `bin`, and a dat.conf in `conf`.
struct Installed {
    folder: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let own = std::env::current_exe().expect("a path");
        let beside = own.parent().expect("a folder");
        // On the same file system, so that a link is enough.
        let folder = tempfile::tempdir_in(beside).expect("a folder");
        let folder = Self { folder };
        for name in ["bin", "lib", "conf/dat.conf.d"] {
            fs::create_dir_all(folder.path(name)).expect("a folder");
        }
        fs::hard_link(own, folder.path("bin/program")).expect("a link");
        let entry = "plugged u2.0 threadsafe default libplugged.so test.1.0 \"\" \"\"\n";
        fs::write(folder.path("conf/dat.conf"), entry).expect("a file");
        folder
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Opens the adapter in a process, and returns the message.
    fn open(&self) -> String {
        let mut child = Command::new(self.path("bin/program"));
        child.args(["--exact", "child", "--nocapture"]);
        child
            .env(CHILD, "1")
            .env("DAT_OVERRIDE", self.path("conf/dat.conf"));
        let output = child.output().expect("runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find_map(|line| line.split_once("error: "));
        line.unwrap_or_else(|| panic!("{text}")).1.to_owned()
    }

    /// Puts the library into a folder, which must be found there and only there.
    fn check(&self, library: &Path, place: &str) {
        let at = self.path(place).join("libplugged.so");
        fs::copy(library, &at).expect("copied");
        let error = self.open();
        assert!(error.contains("registered no"), "in {place}: {error}");
        fs::remove_file(at).expect("removed");
    }
}

#[test]
fn a_library_is_found_in_each_place_and_the_message_lists_them() {
    let installed = Installed::new();
    let error = installed.open();
    for place in ["bin", "lib", "conf"] {
        let place = installed.path(place).display().to_string();
        assert!(error.contains(&place), "{place} is not in: {error}");
    }
    assert!(
        error.contains("libplugged.so") && error.contains("/usr/lib"),
        "{error}"
    );

    let (source, library) = (installed.path("plugged.c"), installed.path("built.so"));
    fs::write(&source, SOURCE).expect("a file");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source]);
    assert!(compiler.status().expect("a C compiler").success());
    for place in ["bin", "lib", "conf"] {
        installed.check(&library, place);
    }
    // The entry may be in a file of the folder beside dat.conf.
    let (file, part) = (
        installed.path("conf/dat.conf"),
        "conf/dat.conf.d/10-plugged.conf",
    );
    fs::rename(&file, installed.path(part)).expect("moved");
    fs::write(&file, "").expect("a file");
    for place in ["conf", "conf/dat.conf.d"] {
        installed.check(&library, place);
    }
}
