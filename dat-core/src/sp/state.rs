//! What a service point does with a request, as a pure table (dat_psp_create, dat_rsp_create).

/// State of a service point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SpState {
    /// A PSP: the consumer brings an endpoint when it accepts.
    ConsumerEp,
    /// A PSP with `DAT_PSP_PROVIDER_FLAG`: each request gets an endpoint.
    ProviderEp,
    /// An RSP that waits for its one request.
    Reserved,
    /// An RSP that had it.
    Spent,
    /// Freed.
    Freed,
}

/// What happens to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SpInput {
    /// A connection request comes in.
    Request,
    /// dat_psp_free, dat_rsp_free, or the IA is closed.
    Free,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SpEffect {
    /// Nothing.
    None,
    /// Announce the request alone.
    Announce,
    /// Make an endpoint and announce the request with it.
    Offer,
    /// Give the request to the reserved endpoint, and announce it.
    Hand,
    /// Refuse the request.
    Refuse,
    /// The reserved endpoint goes back to Unconnected.
    Unreserve,
}

/// The next state and what is to be done.
#[must_use]
pub const fn step(state: SpState, input: SpInput) -> (SpState, SpEffect) {
    use SpEffect as E;
    use SpInput::{Free, Request};
    use SpState as S;
    match (state, input) {
        (S::ConsumerEp, Request) => (S::ConsumerEp, E::Announce),
        (S::ProviderEp, Request) => (S::ProviderEp, E::Offer),
        (S::Reserved, Request) => (S::Spent, E::Hand),
        (S::Spent, Request) => (S::Spent, E::Refuse),
        (S::Freed, Request) => (S::Freed, E::Refuse),
        (S::Reserved, Free) => (S::Freed, E::Unreserve),
        (S::ConsumerEp | S::ProviderEp | S::Spent | S::Freed, Free) => (S::Freed, E::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every cell, written down a second time: state, then what a request and a free lead to.
    #[test]
    fn the_whole_table() {
        use SpEffect as E;
        use SpState as S;
        for (state, request, free) in [
            (S::ConsumerEp, (S::ConsumerEp, E::Announce), E::None),
            (S::ProviderEp, (S::ProviderEp, E::Offer), E::None),
            (S::Reserved, (S::Spent, E::Hand), E::Unreserve),
            (S::Spent, (S::Spent, E::Refuse), E::None),
            (S::Freed, (S::Freed, E::Refuse), E::None),
        ] {
            assert_eq!(step(state, SpInput::Request), request, "{state:?}");
            assert_eq!(step(state, SpInput::Free), (S::Freed, free), "{state:?}");
        }
    }
}
