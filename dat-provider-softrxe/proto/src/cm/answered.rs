//! Requests of peers that were answered, for longer than their connections are kept. Pure.
//!
//! A repeated REQ may arrive when the connection has come and gone: the process that holds the shared UDP port passes REQs on, and it
//! may have had no processor for seconds. It is not a new request.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::peer::Peer;
use crate::time::Time;

/// Time for which an answered request is known.
const KEPT: Duration = Duration::from_secs(60);
/// Maximum number of known requests: less than 1 MiB. A later one displaces the oldest.
const MOST: usize = 8192;

/// A request: the peer, its id of the connection, and the transaction of the REQ.
pub(crate) type Request = (Peer, u32, u64);

/// The requests that were answered in the last minute.
#[derive(Debug, Default)]
pub(crate) struct AnsweredRequests {
    known: HashSet<Request>,
    /// Oldest first.
    order: VecDeque<(Time, Request)>,
}

impl AnsweredRequests {
    /// Adds a request that is answered.
    pub(crate) fn add(&mut self, now: Time, request: Request) {
        self.expire(now);
        if self.known.insert(request) {
            if self.order.len() == MOST {
                self.remove_oldest();
            }
            self.order.push_back((now, request));
        }
    }

    /// Returns whether the request was answered before.
    pub(crate) fn has(&mut self, now: Time, request: &Request) -> bool {
        self.expire(now);
        self.known.contains(request)
    }

    fn expire(&mut self, now: Time) {
        while let Some((at, _)) = self.order.front()
            && now.since(*at) > KEPT
        {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        if let Some((_, request)) = self.order.pop_front() {
            self.known.remove(&request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    fn request(id: u32, transaction: u64) -> Request {
        let source = SocketAddr::from((Ipv4Addr::LOCALHOST, 4791));
        (Peer::new(source, 7), id, transaction)
    }

    #[test]
    fn an_answered_request_is_known_for_a_minute() {
        let (mut answered, begin) = (AnsweredRequests::default(), Time::ZERO);
        assert!(!answered.has(begin, &request(1, 1)));
        answered.add(begin, request(1, 1));
        answered.add(begin + KEPT / 2, request(2, 1));
        let end = begin + KEPT;
        assert!(answered.has(end, &request(1, 1)) && answered.has(end, &request(2, 1)));
        assert!(!answered.has(end, &request(1, 2)), "another transaction");
        let later = end + Duration::from_nanos(1);
        assert!(!answered.has(later, &request(1, 1)) && answered.has(later, &request(2, 1)));
    }

    #[test]
    fn the_oldest_make_room() {
        let (mut answered, now) = (AnsweredRequests::default(), Time::ZERO);
        let ids = 0..MOST as u32 + 2;
        for id in ids.clone() {
            answered.add(now, request(id, 0));
            answered.add(now, request(id, 0));
        }
        let known = ids.filter(|id| answered.has(now, &request(*id, 0)));
        assert_eq!(
            known.collect::<Vec<_>>(),
            (2..MOST as u32 + 2).collect::<Vec<_>>()
        );
        assert_eq!(answered.order.len(), answered.known.len());
    }
}
