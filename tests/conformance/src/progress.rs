//! Reports of progress: statements about load make them, so that a slow machine is not taken for a hang.

use std::fmt;
use std::sync::Arc;

/// The function that reports progress, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Progress(Option<Arc<dyn Fn() + Send + Sync>>);

impl Progress {
    pub(crate) fn by(report: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(report)))
    }

    pub(crate) fn report(&self) {
        if let Some(report) = &self.0 {
            report();
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Progress").field(&self.0.is_some()).finish()
    }
}
