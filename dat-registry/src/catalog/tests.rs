use super::*;

fn catalog() -> Catalog {
    let text = "\
            a u2.0 threadsafe default safe.so v.1.0 \"\" \"\"\n\
            a u2.0 nonthreadsafe default unsafe.so v.1.0 \"\" \"\"\n\
            a u1.2 nonthreadsafe default old.so v.1.0 \"\" \"\"\n\
            b u2.0 threadsafe default b.so v.1.0 \"\" \"\"\n\
            k k2.0 threadsafe default k.so v.1.0 \"\" \"\"\n";
    Catalog::new(
        conf::parse(text.as_bytes(), Path::new("t.conf")),
        vec!["t.conf".into()],
    )
}

#[test]
fn find_returns_the_best_entry_that_satisfies_the_request() {
    let catalog = catalog();
    let library = |name, major, minor, thread_safe| {
        catalog
            .find(&Request {
                name,
                major,
                minor,
                thread_safe,
            })
            .map(|e| e.library)
    };
    assert_eq!(library("a", 2, 0, false).as_deref(), Some("unsafe.so"));
    assert_eq!(library("a", 2, 0, true).as_deref(), Some("safe.so"));
    assert_eq!(library("a", 1, 2, false).as_deref(), Some("old.so"));
    assert_eq!(library("a", 1, 2, true), None);
    assert_eq!(library("a", 1, 1, false).as_deref(), Some("old.so"));
    assert_eq!(library("a", 2, 1, false), None);
    assert_eq!(
        library("b", 2, 0, false).as_deref(),
        Some("b.so"),
        "a thread-safe provider also serves a single thread"
    );
    assert_eq!(library("k", 2, 0, false), None);
}

#[test]
fn the_message_for_an_unknown_name_lists_the_known_ones() {
    let text = catalog().explain_missing(&Request::new("c", (2, 0)));
    assert!(
        text.contains("t.conf has no IA \"c\"; it has: a, b"),
        "{text}"
    );
    let line = |name: &str| format!("{name} u2.0 threadsafe default p.so v.1.0 \"* 0\" \"\"\n");
    let said = |text: &str| {
        let parsed = conf::parse(text.as_bytes(), Path::new("p.conf"));
        let request = Request::new("c", (2, 0));
        Catalog::new(parsed, vec!["p.conf".into()]).explain_missing(&request)
    };
    let text = said(&(line("x-*") + &line("y-*-1") + &line("x-*")));
    assert!(text.ends_with("it has: the patterns x-*, y-*-1"), "{text}");
    let text = said(&["a", "x-*", "y-*", "z-*", "w-*"].map(line).concat());
    assert!(said(&line("x-*")).ends_with("it has: the pattern x-*"));
    let one = said(&(line("a") + &line("x-*")));
    assert!(one.ends_with("it has: a, and the pattern x-*"), "{one}");
    let wants = "it has: a, and the patterns x-*, y-*, z-* and 1 more";
    assert!(text.ends_with(wants), "{text}");
    let text = catalog().explain_missing(&Request {
        name: "b",
        major: 1,
        minor: 2,
        thread_safe: true,
    });
    assert!(text.contains("u2.0 threadsafe at t.conf:4"), "{text}");
}

#[test]
fn aliases_patterns_and_a_default() {
    let text = "\
            a u2.0 threadsafe default a.so v.1.0 \"\" \"\"\n\
            ofa-v2-*-1u u2.0 threadsafe nondefault u.so v.1.0 \"* 1\" \"\"\n\
            ofa-v2-* u2.0 threadsafe nondefault v.so v.1.0 \"* 0\" \"\"\n\
            alias OpenIB-cma b\nalias b a\nalias x-* a\nalias loop loop\nalias lost nowhere\n";
    let parsed = conf::parse(text.as_bytes(), Path::new("t.conf"));
    let find = |parsed: &Parsed, name| {
        let catalog = Catalog::new(parsed.clone(), vec!["t.conf".into()]);
        let request = Request::new(name, (2, 0));
        catalog
            .find(&request)
            .map(|e| (e.name, e.library, e.ia_params))
    };
    let is = |name: &str, library: &str, params: &str| {
        Some((name.into(), library.into(), params.into()))
    };
    assert_eq!(find(&parsed, "OpenIB-cma"), is("a", "a.so", ""));
    assert_eq!(find(&parsed, "x-1"), is("a", "a.so", ""));
    assert_eq!(
        find(&parsed, "ofa-v2-mlx5_0-1u"),
        is("ofa-v2-mlx5_0-1u", "u.so", "mlx5_0 1")
    );
    assert_eq!(
        find(&parsed, "ofa-v2-ib0"),
        is("ofa-v2-ib0", "v.so", "ib0 0")
    );
    assert_eq!(
        (find(&parsed, "loop"), find(&parsed, "other")),
        (None, None)
    );
    let faults: Vec<String> = Catalog::new(parsed.clone(), vec!["t.conf".into()])
        .faults()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(
        faults[0].starts_with("t.conf:7:12: the alias stands for \"loop\", which leads back"),
        "{faults:?}"
    );
    assert!(
        faults[1].starts_with("t.conf:8:12: the alias stands for \"nowhere\""),
        "{faults:?}"
    );
    let mut with_default = parsed;
    with_default
        .aliases
        .extend(conf::parse(b"alias * a", Path::new("u")).aliases);
    assert_eq!(find(&with_default, "other"), is("a", "a.so", ""));
    assert_eq!(
        find(&with_default, "ofa-v2-ib0"),
        is("ofa-v2-ib0", "v.so", "ib0 0")
    );
}

#[test]
fn a_chain_of_aliases_that_is_too_long_is_named() {
    let entry = "n10 u2.0 threadsafe default a.so v.1.0 \"\" \"\"\n";
    let chain = |count: u32| -> String {
        (0..count)
            .map(|n| format!("alias n{n} n{}\n", n + 1))
            .collect()
    };
    let said = |text: &str| -> Vec<String> {
        let parsed = conf::parse(text.as_bytes(), Path::new("t.conf"));
        let catalog = Catalog::new(parsed, vec!["t.conf".into()]);
        catalog.faults().iter().map(ToString::to_string).collect()
    };
    let faults = said(&(chain(10) + entry));
    assert_eq!(faults.len(), 2, "{faults:?}");
    let wants = "t.conf:1:10: the alias stands for \"n1\", and more than 8 aliases follow";
    assert!(faults[0].starts_with(wants), "{faults:?}");
    for (text, wants) in [
        ("alias a b\nalias b c\n", "which no entry has"),
        ("alias a b\nalias b b\n", "which leads back"),
        ("alias a b\nalias b a\n", "which leads back"),
    ] {
        assert!(said(text)[0].contains(wants), "{:?}", said(text));
    }
}

#[test]
fn an_alias_of_a_file_that_wins_leads_an_old_name_elsewhere() {
    let file = |path: &str, text: &str| Found {
        path: path.into(),
        contents: Ok(text.into()),
    };
    let main = "\
            ofa-v2-* u2.0 threadsafe default v.so v.1.0 \"* 0\" \"\"\n\
            ofa-v2-ib0 u2.0 threadsafe default ib.so v.1.0 \"\" \"\"\n\
            mine u2.0 threadsafe default mine.so v.1.0 \"\" \"\"\n\
            old u1.2 threadsafe default old.so v.1.0 \"\" \"\"\n";
    let library = |catalog: &Catalog, name, major| {
        let request = Request::new(name, (major, 0));
        catalog.find(&request).map(|entry| entry.library)
    };
    let site = "alias ofa-v2-ib0 mine\nalias ofa-v2-ib1 mine\nalias old mine\n";
    let catalog = Catalog::of(&[file("d/site.conf", site), file("dat.conf", main)]);
    for name in ["ofa-v2-ib0", "ofa-v2-ib1", "old"] {
        assert_eq!(library(&catalog, name, 2).as_deref(), Some("mine.so"));
    }
    assert_eq!(library(&catalog, "ofa-v2-ib2", 2).as_deref(), Some("v.so"));
    // The alias leads to nothing of 1.2, so the entry counts.
    assert_eq!(library(&catalog, "old", 1).as_deref(), Some("old.so"));
    assert_eq!(catalog.faults(), []);
    // In one file, or in one that loses, the entry counts.
    let one = Catalog::of(&[file("dat.conf", &(main.to_owned() + site))]);
    let lost = Catalog::of(&[file("d/main.conf", main), file("site.conf", site)]);
    for catalog in [one, lost] {
        assert_eq!(library(&catalog, "ofa-v2-ib0", 2).as_deref(), Some("ib.so"));
        assert_eq!(
            library(&catalog, "ofa-v2-ib1", 2).as_deref(),
            Some("mine.so")
        );
        let faults: Vec<String> = catalog.faults().iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].contains("this alias is dead"), "{faults:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_a_fault_of_its_own() {
    let gone = Found {
        path: "d/gone.conf".into(),
        contents: Err("Permission denied".into()),
    };
    let main = Found {
        path: "dat.conf".into(),
        contents: Ok("a u2.0 threadsafe default a.so v.1.0 \"\" \"\"\n".into()),
    };
    let catalog = Catalog::of(&[gone, main]);
    assert_eq!(catalog.names(2), ["a"]);
    assert_eq!(
        catalog.errors()[0].to_string(),
        "d/gone.conf: this cannot be read: Permission denied; it is left out"
    );
}

#[test]
fn an_entry_that_no_request_reaches_is_named() {
    let text = "\
            a u2.0 threadsafe default a.so v.1.0 \"\" \"\"\n\
            a u2.0 nonthreadsafe default b.so v.1.0 \"\" \"\"\n\
            a u2.0 threadsafe default c.so v.1.0 \"\" \"\"\n";
    let catalog = Catalog::new(
        conf::parse(text.as_bytes(), Path::new("t.conf")),
        vec!["t.conf".into()],
    );
    let faults: Vec<String> = catalog.faults().iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].starts_with("t.conf:3:1: warning: this entry is dead: t.conf:1 has"),
        "{faults:?}"
    );
    assert_eq!(catalog.names(2), ["a"]);
}

#[test]
fn an_entry_of_a_file_that_wins_counts_whatever_its_thread_safety() {
    let file = |path: &str, text: &str| Found {
        path: path.into(),
        contents: Ok(text.into()),
    };
    let site = "a u2.0 threadsafe default site.so v.1.0 \"\" \"\"\n\
            only u2.0 nonthreadsafe default site.so v.1.0 \"\" \"\"\n";
    let main = "a u2.0 nonthreadsafe default main.so v.1.0 \"\" \"\"\n\
            only u2.0 threadsafe default main.so v.1.0 \"\" \"\"\n";
    let catalog = Catalog::of(&[file("d/site.conf", site), file("dat.conf", main)]);
    let library = |name, thread_safe| {
        let request = Request {
            thread_safe,
            ..Request::new(name, (2, 0))
        };
        catalog.find(&request).map(|entry| entry.library)
    };
    assert_eq!(library("a", false).as_deref(), Some("site.so"));
    assert_eq!(library("a", true).as_deref(), Some("site.so"));
    assert_eq!(library("only", false).as_deref(), Some("site.so"));
    // The entry of the file that wins does not serve this request.
    assert_eq!(library("only", true).as_deref(), Some("main.so"));
}
