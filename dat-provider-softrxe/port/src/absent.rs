//! What engines of an address have that have not joined its new holder yet: they are stopped, or have no processor.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::credentials::Trust;
use crate::message::Destination;
use crate::names;
use crate::unix_socket::Kind;

/// Pause between two looks at the kernel's list of names, which may be long: any host can name what no engine has.
const PAUSE: Duration = Duration::from_millis(50);
/// Names of which one look asks the kernel whose they are, at most. Any user can take thousands.
const MAX_ASKED: usize = 256;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Absent {
    ip: IpAddr,
    /// The last look at the names.
    looked: Option<Instant>,
    have: Vec<Destination>,
    /// Whether an engine of the own user has the name. It is asked once: most names are locks, whose owners accept no connection, so each
    /// stays in their queue.
    is_own: HashMap<Destination, bool>,
    /// The last look had more names than one look asks for.
    incomplete: bool,
}

impl Absent {
    pub(crate) fn new(ip: IpAddr) -> Self {
        Self {
            ip,
            looked: None,
            have: Vec::new(),
            is_own: HashMap::new(),
            incomplete: false,
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
            self.have.retain(|what| !joined(*what));
            self.keep_own();
            self.looked = Some(now);
        }
        self.have.retain(|what| !joined(*what));
        if self.have.is_empty() && !self.incomplete {
            return None;
        }
        Some(self.have.contains(&to))
    }

    /// Drops what other users have named: they would keep a peer from its refusal.
    fn keep_own(&mut self) {
        let Self {
            ip,
            have,
            is_own,
            incomplete,
            ..
        } = self;
        let known = std::mem::take(is_own);
        let mut asked = 0;
        *incomplete = false;
        have.retain(|what| {
            let own = match known.get(what) {
                Some(own) => *own,
                None if asked == MAX_ASKED => {
                    *incomplete = true;
                    return false;
                }
                None => {
                    asked += 1;
                    is_of_own_user(*ip, *what)
                }
            };
            is_own.insert(*what, own);
            own
        });
    }
}

/// Returns whether a process of the own user listens under the name of `what`.
fn is_of_own_user(ip: IpAddr, what: Destination) -> bool {
    let name = match what {
        Destination::Slot(slot) => names::slot_name(ip, &slot.to_string()),
        Destination::Service(id) => names::service_name(ip, &names::service_word(id)),
    };
    match names::connect_exact(Kind::Stream, &name, Trust::Own) {
        Ok(_) => true,
        // The queue of a stopped engine is full of its peers.
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// Returns what engines have at `ip`, by their names, which each has as long as it lives. Another user can take such a name.
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
