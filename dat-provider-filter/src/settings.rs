//! The settings of a filter's entry in dat.conf.

use dat_core::ia_params::{IaParams, IaParamsError};

/// What the library declares to `dat check` and to the TOML form (`dat_rs_settings`).
pub(crate) const DECLARED: &str = "filter one-of trace\ninner text\nfile text\n";

/// The keys of [`DECLARED`].
const KEYS: &[&str] = &["filter", "inner", "file"];

/// Settings of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Name of the IA to wrap.
    pub(crate) inner: String,
    /// File for the report; `%p` stands for the process id.
    pub(crate) file: String,
}

/// The reason why an entry's settings cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
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
        params
            .word("filter", &["trace"])?
            .ok_or(SettingsError::Missing {
                key: "filter",
                example: "trace",
            })?;
        Ok(Self {
            inner: text("inner", "softrxe-lo")?,
            file: text("file", "/tmp/trace-%p.json")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_its_filter_the_inner_ia_and_the_file() {
        let parsed = Settings::parse("filter=trace inner=softrxe-lo file=/tmp/x.json");
        assert_eq!(
            parsed,
            Ok(Settings {
                inner: "softrxe-lo".into(),
                file: "/tmp/x.json".into()
            })
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
        ] {
            let error = Settings::parse(text).expect_err(text).to_string();
            assert!(error.contains(named), "{text:?}: {error}");
        }
    }
}
