//! Connection qualifiers: the choice of one, and a table of the service points of one process.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use dat_core::error::{Error, Kind, Result};

use crate::NO_MEMORY;

/// Range from which a qualifier is chosen if the consumer gives none.
pub const DYNAMIC: RangeInclusive<u64> = 49_152..=65_535;

/// Binds the qualifier `wanted`, or the first of [`DYNAMIC`] that `bind` does not refuse with `DAT_CONN_QUAL_IN_USE`. Returns what `bind`
/// returned, and the qualifier.
///
/// # Errors
/// That of `bind`; `DAT_CONN_QUAL_UNAVAILABLE` if all of [`DYNAMIC`] are in use.
pub fn choose<R>(wanted: Option<u64>, mut bind: impl FnMut(u64) -> Result<R>) -> Result<(R, u64)> {
    if let Some(qual) = wanted {
        return Ok((bind(qual)?, qual));
    }
    for qual in DYNAMIC {
        match bind(qual) {
            Err(error) if error.kind() == Some(Kind::ConnQualInUse) => {}
            done => return Ok((done?, qual)),
        }
    }
    Err(Error::of(Kind::ConnQualUnavailable))
}

/// The service points of one process by address and qualifier.
#[derive(Debug)]
pub struct Ports<S>(HashMap<(IpAddr, u64), S>);

impl<S> Default for Ports<S> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<S> Ports<S> {
    /// Adds `service` at the qualifier `wanted`, or at a free one; returns the qualifier.
    ///
    /// # Errors
    /// `DAT_CONN_QUAL_IN_USE`, `DAT_CONN_QUAL_UNAVAILABLE`, `DAT_INSUFFICIENT_RESOURCES`.
    pub fn listen(&mut self, address: IpAddr, wanted: Option<u64>, service: S) -> Result<u64> {
        self.0.try_reserve(1).map_err(|_| NO_MEMORY)?;
        let ((), qual) = choose(wanted, |qual| match self.0.contains_key(&(address, qual)) {
            true => Err(Error::of(Kind::ConnQualInUse)),
            false => Ok(()),
        })?;
        self.0.insert((address, qual), service);
        Ok(qual)
    }

    /// Returns the service point at a qualifier.
    #[must_use]
    pub fn get(&self, address: IpAddr, qual: u64) -> Option<&S> {
        self.0.get(&(address, qual))
    }

    /// Ends a service point.
    pub fn remove(&mut self, address: IpAddr, qual: u64) -> Option<S> {
        self.0.remove(&(address, qual))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualifiers_are_unique_for_an_address_and_free_again_after_removal() {
        let (one, two) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let mut ports = Ports::default();
        assert_eq!(ports.listen(one, Some(7), 'a'), Ok(7));
        assert_eq!(
            ports.listen(one, Some(7), 'b'),
            Err(Error::of(Kind::ConnQualInUse))
        );
        assert_eq!(ports.listen(two, Some(7), 'c'), Ok(7));
        assert_eq!(
            (ports.get(one, 7), ports.get(two, 7)),
            (Some(&'a'), Some(&'c'))
        );
        assert_eq!(ports.remove(one, 7), Some('a'));
        assert_eq!(ports.get(one, 7), None);
        assert_eq!(ports.listen(one, Some(7), 'd'), Ok(7));
    }

    #[test]
    fn without_a_wish_the_first_free_one_is_taken_until_none_is_left() {
        let one = IpAddr::from([127, 0, 0, 1]);
        let mut ports = Ports::default();
        assert_eq!(ports.listen(one, None, ()), Ok(*DYNAMIC.start()));
        for qual in DYNAMIC.skip(1) {
            assert_eq!(ports.listen(one, Some(qual), ()), Ok(qual));
        }
        let none = Err(Error::of(Kind::ConnQualUnavailable));
        assert_eq!(ports.listen(one, None, ()), none);
        ports.remove(one, 50_000);
        assert_eq!(ports.listen(one, None, ()), Ok(50_000));
    }
}
