//! State machine of a service point: a pure table of what it does with a request (dat_psp_create, dat_rsp_create).

/// State of a service point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SpState {
    /// PSP; the consumer passes an endpoint when it accepts.
    ConsumerEp,
    /// PSP with `DAT_PSP_PROVIDER_FLAG`; each request gets an endpoint.
    ProviderEp,
    /// RSP that waits for its one request.
    Reserved,
    /// RSP that had its request.
    Spent,
    /// Freed service point.
    Freed,
}

/// Event of a service point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SpInput {
    /// A connection request arrives.
    Request,
    /// dat_psp_free, dat_rsp_free, or the IA is closed.
    Free,
}

/// Action that the caller of [`step`] must take.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SpEffect {
    /// No action.
    None,
    /// Queue an event for the request alone.
    Announce,
    /// Make an endpoint and queue an event for the request with it.
    Offer,
    /// Give the request to the reserved endpoint, and queue an event.
    Deliver,
    /// Refuse the request.
    Refuse,
    /// The reserved endpoint goes back to Unconnected.
    Unreserve,
}

/// Returns the next state and the action.
#[must_use]
pub const fn step(state: SpState, input: SpInput) -> (SpState, SpEffect) {
    use SpEffect as E;
    use SpInput::{Free, Request};
    use SpState as S;
    match (state, input) {
        (S::ConsumerEp, Request) => (S::ConsumerEp, E::Announce),
        (S::ProviderEp, Request) => (S::ProviderEp, E::Offer),
        (S::Reserved, Request) => (S::Spent, E::Deliver),
        (S::Spent, Request) => (S::Spent, E::Refuse),
        (S::Freed, Request) => (S::Freed, E::Refuse),
        (S::Reserved, Free) => (S::Freed, E::Unreserve),
        (S::ConsumerEp | S::ProviderEp | S::Spent | S::Freed, Free) => (S::Freed, E::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected table: state, then the result of a request and of a free.
    #[test]
    fn the_whole_table() {
        use SpEffect as E;
        use SpState as S;
        for (state, request, free) in [
            (S::ConsumerEp, (S::ConsumerEp, E::Announce), E::None),
            (S::ProviderEp, (S::ProviderEp, E::Offer), E::None),
            (S::Reserved, (S::Spent, E::Deliver), E::Unreserve),
            (S::Spent, (S::Spent, E::Refuse), E::None),
            (S::Freed, (S::Freed, E::Refuse), E::None),
        ] {
            assert_eq!(step(state, SpInput::Request), request, "{state:?}");
            assert_eq!(step(state, SpInput::Free), (S::Freed, free), "{state:?}");
        }
    }
}
