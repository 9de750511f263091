//! What engines of an address have that have not joined its new holder yet: they are stopped, or have no processor.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::message::Destination;
use crate::names;

/// Pause between two looks at the kernel's list of names, which may be long: any host can name what no engine has.
const PAUSE: Duration = Duration::from_millis(50);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Absent {
    ip: IpAddr,
    /// The last look at the names.
    looked: Option<Instant>,
    have: Vec<Destination>,
}

impl Absent {
    pub(crate) fn new(ip: IpAddr) -> Self {
        Self {
            ip,
            looked: None,
            have: Vec::new(),
        }
    }

    /// Returns whether an engine that has not joined has `to`; `joined` says that of what one that has joined has. `None`: all engines
    /// have joined.
    pub(crate) fn has(
        &mut self,
        to: Destination,
        joined: impl Fn(Destination) -> bool,
    ) -> Option<bool> {
        let now = Instant::now();
        if self.looked.is_none_or(|last| last + PAUSE <= now) {
            self.have = named(self.ip);
            self.looked = Some(now);
        }
        self.have.retain(|what| !joined(*what));
        if self.have.is_empty() {
            return None;
        }
        Some(self.have.contains(&to))
    }
}

/// Returns what engines of the own user have at `ip`. Each has names for it as long as it lives.
fn named(ip: IpAddr) -> Vec<Destination> {
    let slots = names::endings(&names::slot_name(ip, ""));
    let slots = slots.iter().filter_map(|slot| slot.parse().ok());
    let services = names::endings(&names::service_name(ip, ""));
    let services = services.iter();
    let services = services.filter_map(|id| u64::from_str_radix(id, 16).ok());
    slots
        .map(Destination::Slot)
        .chain(services.map(Destination::Service))
        .collect()
}

#[cfg(test)]
mod tests;
