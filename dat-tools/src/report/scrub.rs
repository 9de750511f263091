//! Removes what names the machine and its user: host name, user name, home folder, addresses, GUIDs.
//!
//! Equal addresses get equal words, so that a reader sees which belong together. Loopback and unspecified addresses
//! name no machine, and stay.

use std::collections::HashMap;
use std::net::IpAddr;
use std::{env, fs};

use serde_json::Value;

/// Replaces names and addresses in text.
#[derive(Debug, Default)]
pub(super) struct Scrubber {
    /// Names, with what replaces each.
    names: Vec<(String, &'static str)>,
    home: Option<String>,
    /// Each address that was replaced, with its number.
    addresses: HashMap<String, usize>,
}

impl Scrubber {
    /// Returns a scrubber for the names of this machine, of this user, and of the host measured against.
    pub(super) fn of_this_machine(peer: Option<&str>) -> Self {
        let mut names = vec![(peer.unwrap_or_default().to_owned(), "PEER")];
        for file in ["/proc/sys/kernel/hostname", "/etc/hostname"] {
            let host = fs::read_to_string(file).unwrap_or_default();
            let host = host.trim();
            // The name with its domain comes first: the short one is a part of it.
            names.push((host.to_owned(), "HOST"));
            names.push((
                host.split('.').next().unwrap_or_default().to_owned(),
                "HOST",
            ));
        }
        for variable in ["USER", "LOGNAME", "SUDO_USER"] {
            let user = env::var(variable).unwrap_or_default();
            if user != "root" {
                names.push((user, "USER"));
            }
        }
        Self::new(names, env::var("HOME").ok())
    }

    fn new(mut names: Vec<(String, &'static str)>, home: Option<String>) -> Self {
        names.retain(|(name, _)| {
            // Addresses are replaced by number.
            !["", "(none)", "localhost"].contains(&name.as_str()) && name.parse::<IpAddr>().is_err()
        });
        Self {
            names,
            home: home.filter(|home| home.len() > 1),
            addresses: HashMap::new(),
        }
    }

    /// Replaces in all strings of a value. Keys are the command's own words.
    pub(super) fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(all) => all.iter_mut().for_each(|one| self.value(one)),
            Value::Object(map) => map.values_mut().for_each(|one| self.value(one)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(home) = &self.home {
            text = text.replace(home, "~");
        }
        for (name, instead) in &self.names {
            text = replace_words(&text, name, instead);
        }
        self.without_addresses(&text)
    }

    fn without_addresses(&mut self, text: &str) -> String {
        let is_part = |c: char| c.is_ascii_alphanumeric() || ":.%_-".contains(c);
        let mut made = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(is_part) {
            made.push_str(&rest[..at]);
            rest = &rest[at..];
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            self.push_word(&rest[..end], &mut made);
            rest = &rest[end..];
        }
        made + rest
    }

    /// Appends a word, without the address that it is or begins with.
    fn push_word(&mut self, word: &str, made: &mut String) {
        let bare = word.trim_end_matches(['.', ':', '-']);
        let (head, tail) = match bare.rsplit_once(':') {
            _ if is_address(bare) => (bare, &word[bare.len()..]),
            // 192.0.2.1:4791
            Some((address, _)) if is_address(address) => (address, &word[address.len()..]),
            // softrxe-192.0.2.7
            _ if word.contains(JOINTS) => {
                for part in word.split_inclusive(JOINTS) {
                    let name = part.trim_end_matches(JOINTS);
                    self.push_word(name, made);
                    made.push_str(&part[name.len()..]);
                }
                return;
            }
            _ => return made.push_str(word),
        };
        let next = self.addresses.len() + 1;
        let number = *self
            .addresses
            .entry(head.to_ascii_lowercase())
            .or_insert(next);
        made.push_str(&format!("ADDRESS-{number}{tail}"));
    }
}

/// What joins the parts of a name, of which one may be an address.
const JOINTS: [char; 2] = ['-', '_'];

/// Returns true for an address that names a machine: IP, MAC, or GUID.
fn is_address(word: &str) -> bool {
    let without_scope = word.split('%').next().unwrap_or(word);
    if let Ok(ip) = without_scope.parse::<IpAddr>() {
        let ip = ip.to_canonical();
        return !(ip.is_loopback() || ip.is_unspecified());
    }
    let groups: Vec<&str> = word.split(':').collect();
    let are_hex = |digits: usize| {
        groups
            .iter()
            .all(|g| g.len() == digits && g.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    (groups.len() >= 6 && are_hex(2)) || (groups.len() >= 4 && are_hex(4))
}

/// Replaces `name` where no letter or digit is beside it.
fn replace_words(text: &str, name: &str, instead: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut made = String::new();
    let mut from = 0;
    for (at, found) in text.match_indices(name) {
        let before = text[..at].chars().next_back();
        let after = text[at + found.len()..].chars().next();
        if before.is_some_and(is_part) || after.is_some_and(is_part) {
            continue;
        }
        made.push_str(&text[from..at]);
        made.push_str(instead);
        from = at + found.len();
    }
    made + &text[from..]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scrubber() -> Scrubber {
        let names = vec![
            ("node7.example.org".to_owned(), "HOST"),
            ("node7".to_owned(), "HOST"),
            ("ann".to_owned(), "USER"),
            (String::new(), "HOST"),
        ];
        Scrubber::new(names, Some("/home/ann".into()))
    }

    #[test]
    fn names_and_addresses_are_replaced_and_equal_ones_stay_equal() {
        let mut value = json!({
            "open": ["mlx5_0 at 192.0.2.7", "peer 192.0.2.7:4791, then fd09::1."],
            "said": "node7.example.org: /home/ann/dat.conf:3:1: of ann on node7: [fe80::a:b%eth0]",
            "number": 7,
        });
        scrubber().value(&mut value);
        assert_eq!(
            value,
            json!({
                "open": ["mlx5_0 at ADDRESS-1", "peer ADDRESS-1:4791, then ADDRESS-2."],
                "said": "HOST: ~/dat.conf:3:1: of USER on HOST: [ADDRESS-3]",
                "number": 7,
            })
        );
    }

    #[test]
    fn guids_and_macs_are_addresses_and_other_words_are_not() {
        let mut scrubber = scrubber();
        for (text, expected) in [
            ("guid b859:9f03:00d0:1234", "guid ADDRESS-1"),
            ("B8:59:9F:D0:12:34", "ADDRESS-2"),
            ("::ffff:192.0.2.9 up", "ADDRESS-3 up"),
            ("softrxe-192.0.2.9_b", "softrxe-ADDRESS-4_b"),
            ("a_192.0.2.9-", "a_ADDRESS-4-"),
        ] {
            assert_eq!(scrubber.text(text), expected);
        }
        for kept in [
            "127.0.0.1:4791 and ::1, 0.0.0.0",
            "dat.conf:12:40: warning",
            "Linux 6.1.0-56, libdat2.so.2, fw 16.35.2000",
            "planner, node77",
            "2026-11-22 12:30:45",
            "ok -- ... 4: ACTIVE",
        ] {
            assert_eq!(scrubber.text(kept), kept);
        }
    }
}
