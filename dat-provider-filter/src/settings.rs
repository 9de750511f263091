//! The settings of a filter's entry in dat.conf.

use dat_core::ia_params::{IaParams, IaParamsError};

use crate::fault::ScriptError;

/// What the library declares to `dat check` and to the TOML form (`dat_rs_settings`).
pub(crate) const DECLARED: &str = "filter one-of trace fault
inner text
file text
script text
seed number
script only filter fault
seed only filter fault
filter needed trace
inner needed softrxe-lo
file needed /tmp/filter-%p.json
script needed /tmp/faults.txt seed
";

/// The largest number that a declaration has, so that what `dat check` refuses is refused here.
const LARGEST_SEED: u64 = i64::MAX as u64;

/// The keys of [`DECLARED`].
const KEYS: &[&str] = &["filter", "inner", "file", "script", "seed"];

/// Settings of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Name of the IA to wrap.
    pub(crate) inner: String,
    /// File for the report or log; `%p` stands for the process id.
    pub(crate) file: String,
    /// The filter.
    pub(crate) kind: Kind,
}

/// The kind of a filter, with its own settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `trace`.
    Trace,
    /// `fault`: by the rules of a file, or else by those of every seed.
    Fault {
        /// The file.
        script: Option<String>,
        /// The seed of the rules' chances.
        seed: u64,
    },
}

/// The reason why an entry's settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// The grammar of `ia_params`, or an unknown key or value.
    #[error("{0}")]
    Params(#[from] IaParamsError),
    /// A setting is missing.
    #[error("the setting {key} is missing: add {key}={example} to the entry's ia_params")]
    Missing {
        /// The key.
        key: &'static str,
        /// A value.
        example: &'static str,
    },
    /// The filter has no such setting.
    #[error("the filter trace has no setting {0}: it belongs to filter=fault")]
    NotOfTrace(&'static str),
    /// The script cannot be read.
    #[error("the script {path:?} cannot be read: {source}")]
    Read {
        /// Its path.
        path: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The script has a wrong line.
    #[error("the script {path:?}, {source}")]
    Script {
        /// Its path.
        path: String,
        /// What is wrong.
        source: ScriptError,
    },
}

impl Settings {
    /// Parses the `ia_params` of an entry.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub(crate) fn parse(text: &str) -> Result<Self, SettingsError> {
        let params = IaParams::parse(text)?;
        params.known(KEYS)?;
        let text = |key: &'static str, example| {
            params
                .settings
                .get(key)
                .filter(|value| !value.is_empty())
                .cloned()
                .ok_or(SettingsError::Missing { key, example })
        };
        let word = params.word("filter", &["trace", "fault"])?;
        let kind = match word.ok_or(SettingsError::Missing {
            key: "filter",
            example: "trace",
        })? {
            "trace" => Kind::Trace,
            _ => fault(&params)?,
        };
        if let (Kind::Trace, Some(key)) = (
            &kind,
            ["script", "seed"]
                .into_iter()
                .find(|key| params.settings.contains_key(*key)),
        ) {
            return Err(SettingsError::NotOfTrace(key));
        }
        Ok(Self {
            inner: text("inner", "softrxe-lo")?,
            file: text("file", "/tmp/filter-%p.json")?,
            kind,
        })
    }
}

fn fault(params: &IaParams) -> Result<Kind, SettingsError> {
    let script = params.settings.get("script").cloned();
    let seed = params.number("seed", 0..=LARGEST_SEED)?;
    if script.is_none() && seed.is_none() {
        return Err(SettingsError::Missing {
            key: "script",
            example: "/tmp/faults.txt, or seed=1",
        });
    }
    Ok(Kind::Fault {
        script,
        seed: seed.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_its_filter_the_inner_ia_and_the_file() {
        let parse = |text| Settings::parse(text).expect("settings");
        let mut expected = Settings {
            inner: "softrxe-lo".into(),
            file: "/tmp/x.json".into(),
            kind: Kind::Trace,
        };
        assert_eq!(
            parse("filter=trace inner=softrxe-lo file=/tmp/x.json"),
            expected
        );
        expected.kind = Kind::Fault {
            script: Some("/f".into()),
            seed: 0,
        };
        assert_eq!(
            parse("filter=fault inner=softrxe-lo file=/tmp/x.json script=/f"),
            expected
        );
        expected.kind = Kind::Fault {
            script: None,
            seed: 7,
        };
        assert_eq!(
            parse("filter=fault inner=softrxe-lo file=/tmp/x.json seed=7"),
            expected
        );
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (text, named) in [
            ("", "filter=trace"),
            ("filter=trace file=/x", "inner=softrxe-lo"),
            ("filter=trace inner=a", "file=/tmp/"),
            ("filter=other inner=a file=/x", "filter=other"),
            ("filter=trace inner=a file=/x inter=b", "inter"),
            ("filter=trace inner=a file=/x seed=1", "seed"),
            ("filter=fault inner=a file=/x", "seed=1"),
        ] {
            let error = Settings::parse(text).expect_err(text).to_string();
            assert!(error.contains(named), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_check_refuses_what_an_open_refuses() {
        let declared = dat_registry::settings::Declared::parse(DECLARED);
        for (params, is_good) in [
            ("", false),
            ("filter=trace", true),
            ("filter=fault", false),
            ("filter=fault seed=9223372036854775807", true),
            ("filter=fault seed=9223372036854775808", false),
            ("filter=trace seed=1", false),
            ("filter=trace script=/f", false),
        ] {
            let params = format!("{params} inner=a file=/x");
            let line = format!("t u2.0 threadsafe default l v.1.0 \"{params}\" \"\"");
            let parsed = dat_registry::conf::parse(line.as_bytes(), "t".as_ref());
            let found = declared.check(&parsed.entries[0]);
            assert_eq!(found.is_empty(), is_good, "{params}: {found:?}");
            assert_eq!(Settings::parse(&params).is_ok(), is_good, "{params}");
        }
    }

    #[test]
    fn a_check_names_what_is_missing_as_an_open_does() {
        let declared = dat_registry::settings::Declared::parse(DECLARED);
        for params in ["filter=trace file=/x", "filter=trace inner=a"] {
            let line = format!("t u2.0 threadsafe default l v.1.0 \"{params}\" \"\"");
            let parsed = dat_registry::conf::parse(line.as_bytes(), "t".as_ref());
            let found = declared.check(&parsed.entries[0]);
            let opened = Settings::parse(params).expect_err(params).to_string();
            assert!(
                found[0].to_string().contains(&opened),
                "{found:?}: {opened}"
            );
        }
    }
}
