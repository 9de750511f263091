//! Findings of `dat conform`, for its reports.

use dat_conformance::suite::{Judgement, Subject, SuiteError};

/// What was found about a provider in one version.
pub(super) struct Run {
    pub(super) subject: Subject,
    pub(super) judged: Vec<Judgement>,
    /// The reason why nothing more could be tested.
    pub(super) error: Option<SuiteError>,
}
