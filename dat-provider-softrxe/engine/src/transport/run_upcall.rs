//! Upcalls into core.

use std::sync::Arc;

use dat_core::transport::Token;
use dat_core::upcall::{Arrival, Fault, Upcalls};

use super::objects::ConnRequest;
use crate::adapter::hub::{Hub, RunUpcall};
use crate::adapter::upcall::{IncomingRequest, Upcall};
use crate::user_engine::UserEngine;

/// Core's side of an adapter.
pub(super) struct Core(pub(super) Upcalls<UserEngine>);

impl RunUpcall for Core {
    fn run(&self, hub: &Arc<Hub>, upcall: Upcall) {
        match upcall {
            Upcall::Request(sp, request) => self.request(hub, sp, &request),
            Upcall::Connection(token, outcome, data) => self.0.connection(token, outcome, &data),
            Upcall::Datagram(ah, outcome) => self.0.datagram(ah, outcome),
            Upcall::CqReady(token) => self.0.cq_ready(token),
            Upcall::SrqLow(token) => self.0.fault(Fault::SrqLow(token)),
        }
    }
}

impl Core {
    fn request(&self, hub: &Arc<Hub>, sp: Token, request: &IncomingRequest) {
        let arrival = Arrival {
            remote: request.remote,
            local: hub.address(),
            private_data: &request.private_data,
            datagram: request.datagram.is_some(),
        };
        let request = ConnRequest::new(hub, request);
        self.0.connect_request(sp, request, &arrival);
    }
}
