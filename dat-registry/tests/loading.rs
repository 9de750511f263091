//! Loads providers from entries of a dat.conf. The tests compile libraries with each fault; a fault affects its own entry only.

use std::cell::Cell;
use std::ffi::c_void;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use dat_abi::types::DatProviderInfo;
use dat_registry::catalog::Request;
use dat_registry::registrations::{Registered, Table};
use dat_registry::registry::Registry;

thread_local! {
    /// Registry whose lookup runs on this thread, with which a library registers.
    static REGISTRY: Cell<Option<&'static Registry>> = const { Cell::new(None) };
}

unsafe extern "C" fn add(table: *const c_void, info: *const DatProviderInfo) -> u32 {
    let Some(registry) = REGISTRY.get() else {
        return 1;
    };
    // SAFETY: the fixture passes the info that the loader gave it.
    let info = unsafe { &*info };
    let new = Registered::new(table, info);
    u32::from(registry.registrations.add(new).is_err())
}

/// A prefix with `etc/dat.conf`, and libraries made of a few lines of C.
struct Prefix {
    dir: tempfile::TempDir,
    conf: String,
}

const PRELUDE: &str = "
struct info { char name[256]; unsigned major, minor, safe; };
typedef unsigned (*add_fn)(const void *, const struct info *);
static int table = 7;
#ifndef INTERFACE
#define INTERFACE 0x44415401
#endif
const unsigned dat_rs_interface = INTERFACE;
";

impl Prefix {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(dir.path().join("etc")).expect("a folder");
        fs::create_dir(dir.path().join("lib")).expect("a folder");
        Self {
            dir,
            conf: String::new(),
        }
    }

    fn library(&self, name: &str, code: &str) -> PathBuf {
        self.compile(name, &format!("{PRELUDE}{code}"))
    }

    fn compile(&self, name: &str, text: &str) -> PathBuf {
        let source = self.dir.path().join(format!("{name}.c"));
        let library = self.dir.path().join("lib").join(format!("{name}.so"));
        fs::write(&source, text).expect("written");
        let done = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(&source)
            .status();
        assert!(done.expect("cc runs").success(), "{name} compiles");
        library
    }

    /// Adds an entry named `name` for a library of `code`.
    fn provider(&mut self, name: &str, code: &str) {
        let library = self.library(name, code);
        self.entry(name, &library);
    }

    fn entry(&mut self, name: &str, library: &Path) {
        self.conf += &format!(
            "{name} u2.0 threadsafe default {} t.1.0 \"dev 0\" \"\"\n",
            library.display()
        );
    }

    fn registry(&self) -> &'static Registry {
        fs::write(self.dir.path().join("etc/dat.conf"), &self.conf).expect("written");
        let registry: &'static Registry = Box::leak(Box::new(Registry::new()));
        registry.set_own_path(self.dir.path().join("lib/libdat2.so.2"));
        registry
    }
}

fn lookup(registry: &'static Registry, name: &str) -> Result<Table, String> {
    REGISTRY.set(Some(registry));
    let request = Request {
        name,
        major: 2,
        minor: 0,
        thread_safe: false,
    };
    registry
        .lookup(&request, add)
        .map(|found| found.table)
        .map_err(|error| error.to_string())
}

const GOOD: &str = "void dat_rs_provider_init(const struct info *i, const char *p, add_fn add) { add(&table, i); }";

#[test]
fn a_faulty_entry_is_refused_with_its_reason_and_others_work() {
    let mut prefix = Prefix::new();
    prefix.provider("good", GOOD);
    prefix.provider("no_init", "int something_else;");
    prefix.provider(
        "nothing",
        "void dat_provider_init(const struct info *i, const char *p) {}",
    );
    prefix.provider(
        "other_version",
        "void dat_rs_provider_init(const struct info *i, const char *p, add_fn add) {
             struct info mine = *i; mine.major = 3; add(&table, &mine); }",
    );
    prefix.provider(
        "unresolved",
        "unsigned no_such_function_anywhere(void);
         void dat_provider_init(const struct info *i, const char *p) { no_such_function_anywhere(); }",
    );
    prefix.entry("missing", Path::new("/nowhere/libmissing.so"));
    let text = prefix.dir.path().join("lib/text.so");
    fs::write(&text, "this is no shared object").expect("written");
    prefix.entry("text", &text);
    // The dynamic loader would map it, and the process would end by SIGBUS.
    let good = fs::read(prefix.dir.path().join("lib/good.so")).expect("read");
    let cut_off = prefix.dir.path().join("lib/cut_off.so");
    fs::write(&cut_off, &good[..5000]).expect("written");
    prefix.entry("cut_off", &cut_off);
    prefix.conf += "nonsense\n";
    let registry = prefix.registry();

    for (name, wants) in [
        (
            "no_init",
            &["DP-2", "dat_provider_init", "no_init.so", ":2"][..],
        ),
        ("nothing", &["DP-3", "nothing.so", "u2.0"]),
        ("other_version", &["DP-3", "other_version"]),
        ("unresolved", &["DP-1", "no_such_function_anywhere"]),
        (
            "missing",
            &["DP-1", "/nowhere/libmissing.so", "no file", ":6"],
        ),
        ("text", &["DP-1", "text.so", ":7"]),
        ("cut_off", &["DP-1", "cut_off.so", "it has 5000 bytes"]),
        ("absent", &["has no IA \"absent\"", "good, no_init"]),
    ] {
        let error = lookup(registry, name).expect_err(name);
        for want in wants {
            assert!(error.contains(want), "{name}: {error:?} lacks {want:?}");
        }
    }
    assert!(
        lookup(registry, "good").is_ok(),
        "the other entries do not hurt"
    );
    let names: Vec<String> = registry
        .list(2)
        .into_iter()
        .map(|(name, ..)| name)
        .collect();
    assert_eq!(names[0], "good");
    assert!(!names.contains(&"nonsense".to_owned()));
}

#[test]
fn a_provider_for_another_interface_is_refused_before_its_code_runs() {
    let mut prefix = Prefix::new();
    for (name, line) in [
        ("newer", "#define INTERFACE 0x44415402"),
        ("older", "#define INTERFACE 0x44415400"),
        ("unversioned", "#define dat_rs_interface something_else"),
    ] {
        let code = "void dat_rs_provider_init(const struct info *i, const char *p, add_fn add) { __builtin_trap(); }";
        let library = prefix.compile(name, &format!("{line}\n{PRELUDE}{code}"));
        prefix.entry(name, &library);
    }
    let registry = prefix.registry();
    for (name, wants) in [
        (
            "newer",
            ["version 2", "has version 1", "install newer DAT libraries"],
        ),
        (
            "older",
            ["version 0", "has version 1", "build the provider"],
        ),
        (
            "unversioned",
            ["before the versions", "DP-8", "build the provider"],
        ),
    ] {
        let error = lookup(registry, name).expect_err(name);
        for want in wants {
            assert!(error.contains(want), "{name}: {error:?} lacks {want:?}");
        }
    }
}

#[test]
fn the_registry_passes_its_version() {
    let mut prefix = Prefix::new();
    prefix.provider(
        "asks",
        "void dat_rs_provider_init(const struct info *i, const char *p, add_fn add, unsigned version) {
             if (version == 0x44415401) add(&table, i); }",
    );
    let found = lookup(prefix.registry(), "asks");
    assert!(found.is_ok(), "{found:?}");
}

#[test]
fn init_gets_name_version_and_parameters_and_runs_once() {
    let mut prefix = Prefix::new();
    prefix.provider(
        "seen",
        "static int runs;
         void dat_rs_provider_init(const struct info *i, const char *p, add_fn add) {
             if (++runs == 1 && !__builtin_strcmp(i->name, \"seen\") && i->major == 2 && i->minor == 0 && i->safe == 1
                 && !__builtin_strcmp(p, \"dev 0\")) add(&table, i); }",
    );
    let registry = prefix.registry();
    let first = lookup(registry, "seen");
    assert!(first.is_ok(), "{first:?}");
    assert_eq!(
        lookup(registry, "seen"),
        first,
        "the second open finds the registration"
    );
    assert_eq!(registry.registrations.all()[0].open, 2);
    registry.close("seen", 2, first.unwrap_or(Table(0)));
    assert_eq!(registry.registrations.all()[0].open, 1);
}

#[test]
fn a_library_without_a_slash_is_found_in_the_prefix() {
    let mut prefix = Prefix::new();
    prefix.library("libin_the_prefix", GOOD);
    prefix.entry("in_place", Path::new("libin_the_prefix.so"));
    assert!(lookup(prefix.registry(), "in_place").is_ok());
}

#[test]
fn threads_that_open_one_name_at_a_time_load_it_once() {
    let mut prefix = Prefix::new();
    prefix.provider(
        "slow",
        "#include <unistd.h>
         static int runs;
         void dat_rs_provider_init(const struct info *i, const char *p, add_fn add) {
             usleep(50000); if (++runs == 1) add(&table, i); else __builtin_trap(); }",
    );
    let registry = prefix.registry();
    let opened = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                opened.fetch_add(
                    usize::from(lookup(registry, "slow").is_ok()),
                    Ordering::Relaxed,
                )
            });
        }
    });
    assert_eq!(opened.into_inner(), 8);
    assert_eq!(registry.registrations.all()[0].open, 8);
}

#[test]
fn no_lock_is_held_during_init() {
    // The library's init calls the registry: it lists the entries and looks up another name.
    unsafe extern "C" fn nested(table: *const c_void, info: *const DatProviderInfo) -> u32 {
        let registry = REGISTRY.get().expect("set by lookup");
        assert_eq!(registry.list(2).len(), 2);
        let request = Request {
            name: "inner",
            major: 2,
            minor: 0,
            thread_safe: false,
        };
        registry
            .lookup(&request, add)
            .expect("a lookup within an init");
        let own = Request {
            name: "outer",
            ..request
        };
        let error = registry
            .lookup(&own, add)
            .expect_err("its own name")
            .to_string();
        assert!(error.contains("DP-4"), "{error}");
        // SAFETY: the arguments are passed on unchanged.
        unsafe { add(table, info) }
    }
    let mut prefix = Prefix::new();
    prefix.provider("outer", GOOD);
    prefix.provider("inner", GOOD);
    let registry = prefix.registry();
    REGISTRY.set(Some(registry));
    let request = Request {
        name: "outer",
        major: 2,
        minor: 0,
        thread_safe: false,
    };
    registry.lookup(&request, nested).expect("outer opens");
    assert_eq!(registry.registrations.all().len(), 2);
}

/// Adds a classic provider `a`, which counts in `ended` how often it was finished. Its parameters are the function that registers it, and
/// that word.
fn counted(prefix: &mut Prefix, library: &str, api: &str, safety: &str, ended: &AtomicUsize) {
    let path = prefix.library(
        library,
        "unsigned long strtoul(const char *, char **, int);
         static unsigned long *ended;
         void dat_provider_init(const struct info *i, const char *p) {
             char *rest; add_fn add = (add_fn)strtoul(p, &rest, 10);
             ended = (unsigned long *)strtoul(rest, 0, 10); add(&table, i); }
         void dat_provider_fini(const struct info *i) { ++*ended; }",
    );
    let add: unsafe extern "C" fn(*const c_void, *const DatProviderInfo) -> u32 = add;
    prefix.conf += &format!(
        "a {api} {safety} default {} t.1.0 \"{} {}\" \"\"\n",
        path.display(),
        add as usize,
        ended.as_ptr() as usize
    );
}

/// Opens "a" with this thread safety.
fn open(registry: &Registry, thread_safe: bool) -> Table {
    let request = Request {
        thread_safe,
        ..Request::new("a", (2, 0))
    };
    registry.lookup(&request, add).expect("it opens").table
}

#[test]
fn a_classic_provider_is_unloaded_with_its_own_last_ia() {
    /// Runs of the libraries' finalizers.
    static ENDED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    let mut prefix = Prefix::new();
    for (at, safety) in ["nonthreadsafe", "threadsafe"].into_iter().enumerate() {
        counted(&mut prefix, safety, "u2.0", safety, &ENDED[at]);
    }
    let registry = prefix.registry();
    REGISTRY.set(Some(registry));
    let open = |thread_safe| open(registry, thread_safe);
    let ended = || ENDED.each_ref().map(|count| count.load(Ordering::Relaxed));
    let tables = [open(false), open(true)];
    assert_ne!(tables[0], tables[1]);
    registry.close("a", 2, tables[1]);
    assert_eq!(ended(), [0, 1], "an IA of the first one is open");
    registry.close("a", 2, tables[0]);
    assert_eq!(ended(), [1, 1]);
    assert_eq!(registry.registrations.all(), []);
}

/// The last IA of another provider of its name, which is no classic one: one of ours, or one that the program registered itself.
#[test]
fn a_classic_provider_stays_when_another_one_of_its_name_is_closed() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let mut prefix = Prefix::new();
    counted(&mut prefix, "classic", "u2.0", "nonthreadsafe", &ENDED);
    let ours = prefix.library("ours", GOOD);
    prefix.conf += &format!(
        "a u2.0 threadsafe default {} t.1.0 \"\" \"\"\n",
        ours.display()
    );
    let registry = prefix.registry();
    REGISTRY.set(Some(registry));
    let open = |thread_safe| open(registry, thread_safe);
    let [classic, ours] = [open(false), open(true)];
    assert_ne!(classic, ours);
    registry.close("a", 2, ours);
    assert_eq!(ENDED.load(Ordering::Relaxed), 0, "an IA of it is open");
    assert_eq!(open(true), ours, "it is still registered");
    registry.close("a", 2, classic);
    assert_eq!(ENDED.load(Ordering::Relaxed), 1);
}

#[test]
fn of_two_classic_providers_of_a_name_that_differ_in_their_version_the_closed_one_is_unloaded() {
    static ENDED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    let mut prefix = Prefix::new();
    counted(&mut prefix, "older", "u2.0", "threadsafe", &ENDED[0]);
    counted(&mut prefix, "newer", "u2.1", "threadsafe", &ENDED[1]);
    let registry = prefix.registry();
    REGISTRY.set(Some(registry));
    let open = |minor| {
        let request = Request::new("a", (2, minor));
        registry.lookup(&request, add).expect("it opens").table
    };
    let ended = || ENDED.each_ref().map(|count| count.load(Ordering::Relaxed));
    let [older, newer] = [open(0), open(1)];
    assert_ne!(older, newer);
    registry.close("a", 2, newer);
    assert_eq!(ended(), [0, 1], "an IA of the older one is open");
    registry.close("a", 2, older);
    assert_eq!(ended(), [1, 1]);
}

#[test]
fn which_entry_of_a_name_counts_does_not_depend_on_earlier_opens() {
    let mut prefix = Prefix::new();
    let [site, main] = ["site", "main"].map(|name| prefix.library(name, GOOD));
    let line = |safety: &str, library: &Path| {
        let library = library.display();
        format!("a u2.0 {safety} default {library} t.1.0 \"\" \"\"\n")
    };
    let folder = prefix.dir.path().join("etc/dat.conf.d");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("site.conf"), line("nonthreadsafe", &site)).expect("written");
    prefix.conf += &line("threadsafe", &main);
    let open = |registry: &'static Registry, thread_safe| {
        REGISTRY.set(Some(registry));
        let request = Request {
            thread_safe,
            ..Request::new("a", (2, 0))
        };
        registry.lookup(&request, add).expect("it opens").table
    };
    for order in [[false, true, false], [true, false, true]] {
        let registry = prefix.registry();
        let tables = order.map(|thread_safe| open(registry, thread_safe));
        assert_ne!(tables[0], tables[1], "{order:?}");
        assert_eq!(tables[0], tables[2], "{order:?}");
    }
}
