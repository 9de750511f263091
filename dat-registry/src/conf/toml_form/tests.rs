use super::*;
use crate::conf::entry::Value;

fn of(text: &str) -> Parsed {
    crate::conf::parse(text.as_bytes(), Path::new("dat.toml"))
}

#[test]
fn a_table_is_an_entry_and_a_fault_has_line_and_column() {
    let text = r#"
[[ia]]
name = "soft \"rxe\""
library = "lib.so"
params = 'v0 0 engine=user'
[[ia]]
name = "bad"
  colour = "red"
[[ia]]
name = "old"
library = "lib.so"
api = "1.2"
[[ia]]
name = "typed"
libary = "lib.so"
[[ia]]
name = 7
"#;
    let parsed = of(text);
    assert_eq!(parsed.entries.len(), 1);
    let entry = &parsed.entries[0];
    assert_eq!(
        (entry.name.as_str(), entry.ia_params.as_str()),
        ("soft \"rxe\"", "v0 0 engine=user")
    );
    assert!(entry.default && entry.thread_safe && entry.api.major == 2);
    let said: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
    for (text, wants) in said.iter().zip([
        "dat.toml:8:3: unknown key \"colour\"; known ones: name, library",
        "dat.toml:12:7: API version \"1.2\"",
        "dat.toml:15:1: unknown key \"libary\"; did you mean \"library\"?",
        "dat.toml:17:8: invalid type: integer `7`, expected a string",
    ]) {
        assert!(text.starts_with(wants), "{text}\n{wants}");
    }
    assert_eq!(said.len(), 4, "{said:?}");
    let broken = of("[[ia]]\nname = \"a\n");
    assert!(
        broken.errors[0].to_string().starts_with("dat.toml:2:"),
        "{:?}",
        broken.errors
    );
    assert!(
        of("[[ia]]\n").errors[0]
            .to_string()
            .contains("1:1: this [[ia]] has no name")
    );
}

#[test]
fn defaults_aliases_and_typed_parameters() {
    let parsed = of(r#"
[defaults]
library = "lib.so"
thread_safe = false
[[ia]]
name = "a"
alias = ["b", "OpenIB-*"]
[ia.params]
device = "lo"
port = 0
engine = "user"
mtu = 0x400
[[ia]]
name = "c"
thread_safe = true
params.retry = 3
[alias]
"*" = "c"
"#);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    let [a, c] = parsed.entries.as_slice() else {
        panic!("{:?}", parsed.entries)
    };
    assert_eq!(
        (a.ia_params.as_str(), a.thread_safe),
        ("lo 0 engine=user mtu=1024", false)
    );
    assert_eq!((c.ia_params.as_str(), c.thread_safe), ("retry=3", true));
    assert_eq!(a.places.settings[1].value, Value::Number(1024));
    assert_eq!(
        a.places.settings[1].place,
        Place {
            line: 12,
            column: 1
        }
    );
    let aliases: Vec<_> = parsed
        .aliases
        .iter()
        .map(|a| (&*a.name, &*a.target))
        .collect();
    assert_eq!(aliases, [("b", "a"), ("OpenIB-*", "a"), ("*", "c")]);
}

#[test]
fn a_value_with_a_line_break_is_refused() {
    let table = |name: &str, api: &str| {
        of(&format!(
            "[[ia]]\nname = {name:?}\nlibrary = \"l\"\napi = {api:?}\n"
        ))
    };
    assert_eq!(
        table("a\nb u2.0 threadsafe default l d.1.0 p q", "u2.0")
            .errors
            .len(),
        1
    );
    assert_eq!(table("a", "u2.0\nb u2.0").errors.len(), 1);
}

#[test]
fn aliases_keep_the_order_of_the_file_and_a_faulty_one_leaves_the_others() {
    let parsed = of("[alias]\n\"x-*\" = 'a'\n\"*\" = 'b'\nbad = 7\n\"a*b*\" = 'c'\nlast = 'd'\n");
    let names: Vec<_> = parsed.aliases.iter().map(|a| &*a.name).collect();
    assert_eq!(names, ["x-*", "*", "last"]);
    let said: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].starts_with("dat.toml:4:7: an alias stands for"),
        "{said:?}"
    );
    assert!(said[1].starts_with("dat.toml:5:1: the name"), "{said:?}");
}

#[test]
fn a_faulty_entry_leaves_no_alias() {
    for fault in ["api = '2.0'", "provider_version = '1'"] {
        let parsed = of(&format!(
            "[[ia]]\nname = 'a'\nlibrary = 'l'\nalias = ['b']\n{fault}\n"
        ));
        assert_eq!(
            (parsed.aliases.len(), parsed.errors.len()),
            (0, 1),
            "{fault}"
        );
    }
    let parsed = of("[[ia]]\nname = 'a'\nlibrary = 'l'\nalias = ['b', 'c*d*']\n");
    assert_eq!((parsed.aliases.len(), parsed.errors.len()), (0, 1));
}

#[test]
fn a_wrong_byte_of_any_field_is_named() {
    for row in [
        "params = 'lo 0 pcap=/tmp/#\u{fc}'",
        "[ia.params]\npcap = '/tmp/\u{fc}'",
        "[ia.params]\n'\u{fc}' = 1",
        "platform = '\u{fc}'",
        "alias = ['b', '\u{fc}']",
        "[alias]\nb = '\u{fc}'",
        "[alias]\n'\u{fc}' = 'a'",
    ] {
        let text = format!("[[ia]]\nname = 'a'\nlibrary = 'l'\n{row}\n");
        // Latin-1.
        let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
        let parsed = crate::conf::parse(&bytes, Path::new("dat.toml"));
        let said: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
        let of_field = said
            .iter()
            .filter(|text| text.contains("byte 0xfc is not UTF-8"));
        assert_eq!(of_field.count(), 1, "{row}: {said:?}");
        let is_alias = row.starts_with("[alias]");
        assert_eq!(
            (parsed.entries.len(), parsed.aliases.len()),
            (usize::from(is_alias), 0),
            "{row}"
        );
    }
}

#[test]
fn a_key_of_the_parameters_is_one_word() {
    for key in ["a b", "a=b", "a\\nb", ""] {
        let parsed = of(&format!(
            "[[ia]]\nname = 'a'\nlibrary = 'l'\n[ia.params]\n\"{key}\" = 1\n"
        ));
        let said: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            (parsed.entries.len(), said.len()),
            (0, 1),
            "{key}: {said:?}"
        );
        assert!(said[0].starts_with("dat.toml:5:1: "), "{said:?}");
    }
}
