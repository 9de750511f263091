//! Reads the manifest.

use std::path::Path;

/// A version of uDAPL.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Version {
    V1_2,
    V2_0,
}

impl Version {
    pub(crate) fn parse(word: &str) -> Result<Self, String> {
        match word {
            "1.2" => Ok(Self::V1_2),
            "2.0" => Ok(Self::V2_0),
            _ => Err(format!("{word:?} is no version")),
        }
    }
}

/// A value of each version that has the slot.
pub(crate) type PerVersion = [Option<String>; 2];

/// A slot of the function table; `slots.txt` describes the fields.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) versions: Vec<Version>,
    /// Whether both versions have the same thunk.
    pub(crate) shared: bool,
    /// The header that declares the function.
    pub(crate) header: String,
    pub(crate) cancellation_point: bool,
    pub(crate) says: String,
    pub(crate) args: PerVersion,
    pub(crate) probes: PerVersion,
    pub(crate) codes: String,
}

impl Slot {
    /// Returns the C parameters in a version; `None` if the version lacks the slot.
    pub(crate) fn args(&self, version: Version) -> Option<&str> {
        self.args[version as usize].as_deref()
    }

    /// Returns the calling convention for the macros, which take none as `"C"`.
    pub(crate) fn abi(&self) -> &'static str {
        if self.cancellation_point {
            "\"C-unwind\" "
        } else {
            ""
        }
    }
}

/// Reads the manifest, whose first lines describe its form.
pub(crate) fn read(top: &Path) -> Vec<Slot> {
    let text = std::fs::read_to_string(top.join("dat-abi/slots/slots.txt")).expect("the manifest");
    let mut slots: Vec<Slot> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let parsed = match line.strip_prefix("    ") {
            _ if line.is_empty() || line.starts_with('#') => Ok(()),
            None => head(line).map(|slot| slots.push(slot)),
            Some(line) => match slots.last_mut() {
                Some(slot) => property(slot, line),
                None => Err("no slot yet".into()),
            },
        };
        parsed.unwrap_or_else(|error| panic!("slots.txt:{}: {error}", number + 1));
    }
    assert!(slots.iter().all(|slot| !slot.says.is_empty()));
    slots
}

/// Parses `NAME | VERSIONS | THUNK | HEADER [| cancellation point]`.
fn head(line: &str) -> Result<Slot, String> {
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    let (&[name, versions, thunk, header], rest) = fields
        .split_first_chunk()
        .ok_or("four fields begin a slot")?;
    Ok(Slot {
        name: name.into(),
        versions: versions
            .split_whitespace()
            .map(Version::parse)
            .collect::<Result<_, _>>()?,
        shared: match thunk {
            "shared" => true,
            "own" => false,
            _ => return Err(format!("thunk {thunk:?} is neither shared nor own")),
        },
        header: header.into(),
        cancellation_point: match rest {
            [] => false,
            ["cancellation point"] => true,
            _ => return Err(format!("{rest:?} is unknown")),
        },
        says: String::new(),
        args: PerVersion::default(),
        probes: PerVersion::default(),
        codes: String::new(),
    })
}

/// Parses `KEY [VERSION] VALUE`.
fn property(slot: &mut Slot, line: &str) -> Result<(), String> {
    let (key, value) = line.split_once(' ').ok_or("a property has a value")?;
    let value = value.trim();
    let (versions, value) = match value.split_once(' ') {
        Some((word, rest)) if word.starts_with(|c: char| c.is_ascii_digit()) => {
            (vec![Version::parse(word)?], rest.trim())
        }
        _ => (slot.versions.clone(), value),
    };
    let into = match key {
        "says" => {
            slot.says = value.into();
            return Ok(());
        }
        "codes" => {
            slot.codes = value.into();
            return Ok(());
        }
        "args" => &mut slot.args,
        "probes" => &mut slot.probes,
        _ => return Err(format!("{key:?} is no property")),
    };
    for version in versions {
        into[version as usize] = Some(value.into());
    }
    Ok(())
}
