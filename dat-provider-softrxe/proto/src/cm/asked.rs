//! The services that peers ask for.

use std::collections::{HashMap, HashSet};

/// The services with requests that are not answered, or whose peer may not have the answer.
#[derive(Debug, Default)]
pub(crate) struct AskedServices {
    /// Number of these requests; services without one are missing.
    requests: HashMap<u64, u32>,
    /// Services to report when their last request ends.
    watched: HashSet<u64>,
    /// Those of them whose last request has ended.
    unasked: Vec<u64>,
}

impl AskedServices {
    /// Counts a request for `service`.
    pub(crate) fn add(&mut self, service: u64) {
        *self.requests.entry(service).or_default() += 1;
    }

    /// Counts a request for `service` that has ended.
    pub(crate) fn remove(&mut self, service: u64) {
        if let Some(count) = self.requests.get_mut(&service) {
            *count -= 1;
            if *count == 0 {
                self.requests.remove(&service);
                if self.watched.remove(&service) {
                    self.unasked.push(service);
                }
            }
        }
    }

    /// Returns whether `service` has such requests. If so, [`take_unasked`](Self::take_unasked) returns it once the last one has ended.
    pub(crate) fn watch(&mut self, service: u64) -> bool {
        let asked = self.requests.contains_key(&service);
        if asked {
            self.watched.insert(service);
        }
        asked
    }

    /// Returns the watched services whose last request has ended since the last call.
    pub(crate) fn take_unasked(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unasked)
    }
}
