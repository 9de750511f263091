//! Upcalls into core.

use std::sync::Arc;

use dat_core::transport::Token;
use dat_core::upcall::{Arrival, Fault, Upcalls};

use super::objects::ConnRequest;
use crate::adapter::hub::{Hub, RunUpcall};
use crate::adapter::lanes::Passed;
use crate::adapter::upcall::{IncomingRequest, Upcall};
use crate::user_engine::UserEngine;

/// Core's side of a lane.
pub(super) struct Core {
    upcalls: Upcalls<UserEngine>,
    passed: Arc<Passed>,
}

impl RunUpcall for Core {
    fn run(&self, hub: &Arc<Hub>, upcall: Upcall) {
        match upcall {
            Upcall::Request(sp, request) => self.request(hub, sp, &request),
            Upcall::Connection(token, outcome, data) => {
                self.upcalls.connection(token, outcome, &data);
            }
            Upcall::Datagram(ah, outcome) => self.upcalls.datagram(ah, outcome),
            Upcall::CqReady(token) => self.upcalls.cq_ready(token),
            Upcall::SrqLow(token) => self.upcalls.fault(Fault::SrqLow(token)),
            Upcall::Forwarded(id, what) => {
                if let Some((lane, id)) = self.passed.find(id) {
                    lane.with(|state, now| state.engine.forwarded(now, id, what));
                }
            }
        }
    }
}

impl Core {
    pub(super) fn new(upcalls: Upcalls<UserEngine>) -> Self {
        let passed = Arc::default();
        Self { upcalls, passed }
    }

    fn request(&self, hub: &Arc<Hub>, sp: Token, request: &IncomingRequest) {
        let arrival = Arrival {
            remote: request.remote,
            local: hub.address(),
            private_data: &request.private_data,
            datagram: request.datagram.is_some(),
        };
        let request = ConnRequest::new(hub, &self.passed, request);
        self.upcalls.connect_request(sp, request, &arrival);
    }
}
