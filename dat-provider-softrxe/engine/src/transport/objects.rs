//! The objects that core holds. Dropping an object destroys it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread::JoinHandle;

use dat_arena::Mutex;
use dat_handshake::Caller;
use softrxe_proto::{CmError, CmId, Event, Pd, Qpn, Rights, SrqId};

use super::convert::FULL;
use super::queue::Cq;
use crate::adapter::hub::Hub;
use crate::adapter::lanes::{Lanes, Passed};
use crate::adapter::upcall::IncomingRequest;
use crate::memory::range::Range;

/// An open adapter.
pub struct Adapter {
    pub(crate) lanes: Arc<Lanes>,
    /// The helper thread of each lane.
    pub(crate) helpers: Box<[Helper]>,
    /// The number of the protection domain that was created last.
    pub(crate) last_pd: AtomicU32,
}

/// The helper thread of a lane. Dropping it ends the thread.
pub(crate) struct Helper {
    pub(crate) hub: Arc<Hub>,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Adapter {
    /// Ends the helper threads, once, and waits for the end of those that are not the caller.
    pub(crate) fn end(&self) {
        let Some((first, others)) = self.helpers.split_first() else {
            return;
        };
        for helper in &self.helpers {
            helper.hub.log_counters();
        }
        for helper in others {
            helper.hub.end();
        }
        others.iter().for_each(Helper::end);
        // If this process holds the port, the first one passes on what arrives for the others until here.
        first.end();
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.end();
    }
}

impl Helper {
    fn end(&self) {
        self.hub.end();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && !dat_os::schedule::is_caller(&thread)
            && thread.join().is_err()
        {
            tracing::error!(
                "the helper thread of a user-space adapter panicked: this is a bug, please report it"
            );
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}

/// A protection zone.
pub struct Pz {
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) pd: Pd,
}

/// A registered region, in all lanes under the same key.
pub struct Lmr {
    lanes: Arc<Lanes>,
    pub(crate) key: u32,
    /// The lanes that it is in, the first ones.
    registered: usize,
}

impl Lmr {
    /// Registers `range`; addresses in it count from `start`.
    pub(super) fn register(
        pz: &Pz,
        range: Range,
        start: u64,
        rights: Rights,
    ) -> dat_core::error::Result<Self> {
        let lanes = &pz.lanes;
        loop {
            let key = {
                let state = lanes.first().state.lock();
                let memory = state.engine.memory();
                memory.register(range, start, rights, pz.pd).ok_or(FULL)?
            };
            let mut lmr = Self {
                lanes: Arc::clone(lanes),
                key,
                registered: 1,
            };
            while let Some(hub) = lanes.all().get(lmr.registered) {
                let state = hub.state.lock();
                let memory = state.engine.memory();
                // A window of this lane may have the key.
                let added = memory.register_as(key, range, start, rights, pz.pd);
                if !added.ok_or(FULL)? {
                    break;
                }
                lmr.registered += 1;
            }
            if lmr.registered == lanes.all().len() {
                return Ok(lmr);
            }
        }
    }
}

impl std::fmt::Debug for Lmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lmr")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Drop for Lmr {
    fn drop(&mut self) {
        // Copies of a lane run under its lock: after the last lane none touches the memory.
        for hub in &self.lanes.all()[..self.registered] {
            hub.deregister(self.key);
        }
    }
}

/// A shared receive queue.
pub struct Srq {
    pub(crate) lane: usize,
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: SrqId,
}

impl Drop for Srq {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        state.notices.remove_srq(self.id);
        state.engine.destroy_srq(self.id);
        // The next queue may get the same number: events of this one must not reach it.
        state.collect_events();
        let of_another = |event: &Event| !matches!(event, Event::SrqLimit(id) if *id == self.id);
        state.pending.events.retain(of_another);
        self.hub.wake(&mut state);
    }
}

/// A queue pair.
pub struct Qp {
    pub(crate) lane: usize,
    pub(crate) hub: Arc<Hub>,
    pub(crate) qpn: Qpn,
    pub(crate) reads_in: u8,
    pub(crate) reads_out: u8,
    /// Sends datagrams and has no connection.
    pub(crate) datagram: bool,
    /// Objects that must live as long as the queue pair.
    pub(crate) uses: (Arc<Pz>, Arc<Cq>, Arc<Cq>, Option<Arc<Srq>>),
}

impl Qp {
    /// Returns its protection domain.
    pub(super) fn pd(&self) -> Pd {
        self.uses.0.pd
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.hub.with(|state, now| {
            state.connections.remove_of(self.qpn);
            state.connections.end_queries(&mut state.engine, self.qpn);
            state.engine.destroy_qp(now, self.qpn);
            state.engine.memory().unbind_windows_of(self.qpn);
        });
    }
}

/// A service point.
pub struct Listener {
    pub(crate) hub: Arc<Hub>,
    /// The service id for connections, and the one for datagrams unless it was in use.
    pub(crate) service_ids: Vec<u64>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        for service_id in &self.service_ids {
            state.engine.unlisten(*service_id);
            self.hub.retire_service(&mut state, *service_id);
            state.connections.remove_service(*service_id);
        }
    }
}

/// A connection request that is not answered yet; dropping it refuses it.
pub struct ConnRequest {
    pub(crate) hub: Arc<Hub>,
    /// Requests of the first lane that other lanes have.
    passed: Arc<Passed>,
    pub(crate) id: CmId,
    /// The peer has its answer, or needs none.
    pub(crate) answered: bool,
    /// Port that the peer connects to.
    pub(crate) port: u16,
    /// Address and port of the peer.
    pub(crate) remote: SocketAddr,
    /// The peer's datagram queue pair; `None` for a connection.
    pub(crate) caller: Option<Caller>,
}

impl ConnRequest {
    pub(crate) fn new(hub: &Arc<Hub>, passed: &Arc<Passed>, request: &IncomingRequest) -> Self {
        Self {
            hub: Arc::clone(hub),
            passed: Arc::clone(passed),
            id: request.id,
            answered: false,
            port: request.port,
            remote: request.remote,
            caller: request.datagram,
        }
    }

    /// Passes the request to `lane`, whose endpoint accepts it.
    ///
    /// # Errors
    /// `UnknownId` or `State` if the peer has given up, `Stale`. The request is answered then.
    pub(super) fn move_to(&mut self, lane: &Arc<Hub>) -> Result<(), CmError> {
        if Arc::ptr_eq(&self.hub, lane) {
            return Ok(());
        }
        let id = self.id;
        self.answered = true;
        let passed = self.hub.with(|state, now| {
            state.connections.remove_caller(id);
            state.engine.pass_on(now, id)
        })?;
        let here = lane.with(|state, now| {
            let id = state.engine.add_passed(now, passed)?;
            let (_, mut context) = state.parts(&lane.descriptors);
            context.watch_request(id);
            Ok(id)
        })?;
        self.passed.add(id, lane, here);
        self.id = here;
        self.hub = Arc::clone(lane);
        self.answered = false;
        Ok(())
    }

    /// Refuses the request. `data` begins with the version word of a refusal if the consumer refuses it.
    pub(crate) fn refuse(&mut self, data: &[u8]) {
        self.answered = true;
        self.hub.refuse(self.id, self.caller.is_some(), data);
    }
}

impl Drop for ConnRequest {
    fn drop(&mut self) {
        if !self.answered {
            self.refuse(&[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use dat_core::attributes::SrqAttr;
    use dat_core::transport::{Connect, QpCaps, Token, Transport};
    use softrxe_proto::{CmError, SidrReply, SidrRequest};

    use super::*;
    use crate::adapter::upcall::Upcall;
    use crate::transport::open::test_hub;
    use crate::user_engine::UserEngine;

    /// dat_srq_free and dat_srq_create before the helper has reported the first queue's low watermark.
    #[test]
    fn a_new_srq_does_not_get_the_event_of_a_freed_one() {
        let hub = test_hub("127.77.5.1");
        let pz = Arc::new(Pz {
            lanes: Arc::new(Lanes::new([Arc::clone(&hub)].into())),
            pd: Pd(1),
        });
        let attr = SrqAttr {
            max_recv_dtos: 8,
            max_recv_iov: 1,
            low_watermark: None,
        };
        let events = || hub.state.lock().pending.events.len();
        let first = UserEngine::create_srq(&pz, &attr, Token(1)).unwrap();
        UserEngine::arm_srq_limit(&first, 4).unwrap();
        assert_eq!(events(), 1);
        let number = first.id;
        drop(first);
        let second = UserEngine::create_srq(&pz, &attr, Token(2)).unwrap();
        assert_eq!(second.id, number);
        assert_eq!(events(), 0);
        UserEngine::arm_srq_limit(&second, 4).unwrap();
        assert_eq!(events(), 1);
    }

    /// dat_ep_disconnect and dat_ep_free of an endpoint whose lookups are not answered.
    #[test]
    fn lookups_of_an_endpoint_end_with_it() {
        let hub = test_hub("127.77.5.3");
        let lanes = Arc::new(Lanes::new([Arc::clone(&hub)].into()));
        let cq = Arc::new(Cq::create(&lanes, Token(1)).unwrap());
        let pz = Arc::new(Pz { lanes, pd: Pd(1) });
        let caps = QpCaps {
            datagram: true,
            ..QpCaps::default()
        };
        let qp = UserEngine::create_qp(&pz, &caps, &cq, &cq, None, Token(2)).unwrap();
        let qp = Arc::new(qp);
        let connect = Connect {
            token: Token(3),
            remote: "127.77.5.4".parse().unwrap(),
            conn_qual: 7,
            private_data: &[],
            timeout: None,
        };
        let under_way = |count| {
            let state = hub.state.lock();
            assert_eq!(state.engine.connections(), count);
        };
        let look_up = || crate::transport::connect::connect(&qp, &connect).unwrap();
        (0..3).for_each(|_| look_up());
        under_way(3);
        crate::transport::connect::disconnect(&qp);
        under_way(0);
        look_up();
        under_way(1);
        drop(qp);
        under_way(0);
    }

    /// dat_ia_close while the upcall for a request is pending: the request is refused, and the port is free afterwards.
    #[test]
    fn a_pending_request_is_refused_at_close_and_does_not_keep_the_hub() {
        let hub = test_hub("127.77.5.2");
        let remote = (hub.address(), 8).into();
        let id = hub.with(|state, now| {
            let query = SidrRequest {
                remote,
                service_id: 7,
                source_port: 0,
                private_data: &[],
                timeout: None,
            };
            state.engine.sidr_request(now, &query).unwrap()
        });
        let request = IncomingRequest {
            id,
            port: 7,
            remote,
            datagram: None,
            private_data: Box::default(),
        };
        let upcall = Upcall::Request(Token::default(), request);
        hub.state.lock().pending.upcalls.push_back(upcall);
        hub.end();
        hub.run();
        assert!(hub.state.lock().pending.upcalls.is_empty());
        assert_eq!(Arc::strong_count(&hub), 1);
        let reply = SidrReply {
            status: 2,
            qpn: Qpn::default(),
            qkey: 0,
            private_data: &[],
        };
        let again = hub.with(|state, now| state.engine.sidr_reply(now, id, &reply));
        assert!(matches!(again, Err(CmError::UnknownId(_))), "{again:?}");
    }
}
