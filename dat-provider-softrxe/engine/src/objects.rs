//! What core holds of an adapter; dropping an object destroys it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread::JoinHandle;

use dat_handshake::Caller;
use parking_lot::Mutex;
use softrxe_proto::{CmId, ConnectRequest, CqId, Event, Pd, Qpn, RejectReason, SrqId, WindowType};

use super::datagram;
use super::hub::Hub;
use super::memory::regions::Window;
use super::net::message::Destination;

/// An open adapter and its helper thread.
pub struct Adapter {
    pub(crate) hub: Arc<Hub>,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Adapter {
    /// Ends the helper thread, once, and waits for that unless it is the caller.
    pub(crate) fn end(&self) {
        self.hub.end();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the helper thread of a user-space adapter panicked");
        }
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.end();
    }
}

/// A protection zone.
pub struct Pz {
    pub(crate) hub: Arc<Hub>,
    pub(crate) pd: Pd,
}

/// A registered region.
pub struct Lmr {
    pub(crate) hub: Arc<Hub>,
    pub(crate) key: u32,
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
        // Copies run under the same lock: from here on none touches the memory.
        self.hub.state.lock().engine.memory().deregister(self.key);
    }
}

/// A memory window.
pub struct Rmr {
    pub(crate) hub: Arc<Hub>,
    pub(crate) window: Window,
    pub(crate) kind: WindowType,
    /// Its key after everything that was posted.
    pub(crate) key: AtomicU32,
}

impl std::fmt::Debug for Rmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rmr")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Drop for Rmr {
    fn drop(&mut self) {
        let state = self.hub.state.lock();
        state.engine.memory().destroy_window(self.window);
    }
}

/// A completion queue.
pub struct Cq {
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: CqId,
}

impl Drop for Cq {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        state.cqs.remove(&self.id);
        state.engine.destroy_cq(self.id);
    }
}

/// A shared receive queue.
pub struct Srq {
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: SrqId,
}

impl Drop for Srq {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        state.srqs.remove(&self.id);
        state.engine.destroy_srq(self.id);
        // The next one may have its number.
        self.hub.collect(&mut state);
        let of_another = |event: &Event| !matches!(event, Event::SrqLimit(id) if *id == self.id);
        state.events.retain(of_another);
        self.hub.call(&mut state);
    }
}

/// A queue pair.
pub struct Qp {
    pub(crate) hub: Arc<Hub>,
    pub(crate) qpn: Qpn,
    pub(crate) reads_in: u8,
    pub(crate) reads_out: u8,
    /// For datagrams instead of a connection.
    pub(crate) datagram: bool,
    /// Lives as long as its queue pairs.
    pub(crate) _uses: (Arc<Pz>, Arc<Cq>, Arc<Cq>, Option<Arc<Srq>>),
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.hub.with(|state, now| {
            if let Some(id) = state.by_qpn.remove(&self.qpn) {
                state.connections.remove(&id);
            }
            datagram::forget(state, self.qpn);
            state.engine.destroy_qp(now, self.qpn);
            state.engine.memory().forget_queue_pair(self.qpn);
        });
    }
}

/// A service point.
pub struct Listener {
    pub(crate) hub: Arc<Hub>,
    /// For connections, and for datagrams if nobody else has that one.
    pub(crate) service_ids: Vec<u64>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        for service_id in &self.service_ids {
            state.engine.unlisten(*service_id);
            // Others may take the name of the service as soon as it is dropped.
            state.share.release(Destination::Service(*service_id));
            state.services.remove(service_id);
        }
    }
}

/// A connection request that is not answered yet; dropping it refuses it.
pub struct ConnRequest {
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: CmId,
    /// The peer has its answer, or needs none.
    pub(crate) answered: bool,
    /// That it came in at.
    pub(crate) port: u16,
    pub(crate) remote: SocketAddr,
    /// Of a datagram queue pair.
    pub(crate) caller: Option<Caller>,
}

impl ConnRequest {
    pub(crate) fn new(hub: &Arc<Hub>, id: CmId, asked: &ConnectRequest) -> Self {
        Self {
            hub: Arc::clone(hub),
            id,
            answered: false,
            // rdma_cm's service ids end with it.
            port: asked.service_id as u16,
            remote: asked.remote,
            caller: None,
        }
    }
}

impl ConnRequest {
    /// Tells the peer that it is refused, as the consumer if `data` says so.
    pub(crate) fn refuse(&mut self, data: &[u8]) {
        self.answered = true;
        let (id, datagram) = (self.id, self.caller.is_some());
        self.hub.with(|state, now| {
            state.callers.remove(&id);
            if datagram {
                datagram::refuse(state, now, id, data);
            } else {
                // The peer may have given up: then it does not need to be told.
                let _ = state.engine.reject(now, id, RejectReason::CONSUMER, data);
            }
        });
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
    use dat_core::attr::SrqAttr;
    use dat_core::ia_params::IaParams;
    use dat_core::transport::{Token, Transport};
    use dat_core::upcall::Upcalls;

    use super::super::UserEngine;
    use super::super::events::Job;
    use super::super::place::Place;
    use super::super::secrets::Secrets;
    use super::super::settings::Settings;
    use super::*;

    /// One that nobody drives.
    fn hub(address: &str) -> Arc<Hub> {
        let settings = Settings::parse(&IaParams::default(), |_| None).unwrap();
        let place = Place {
            address: address.parse().unwrap(),
            netdev: "lo".into(),
            mtu: 4096,
        };
        let secrets = Secrets::draw().unwrap();
        Hub::open(
            settings,
            place,
            None,
            secrets,
            Upcalls::new(Token::default()),
        )
        .unwrap()
    }

    /// dat_srq_free and dat_srq_create before the helper has told of the first one's low watermark.
    #[test]
    fn a_new_queue_does_not_hear_what_was_meant_for_the_one_before() {
        let hub = hub("127.77.5.1");
        let pz = Arc::new(Pz {
            hub: Arc::clone(&hub),
            pd: Pd(1),
        });
        let attr = SrqAttr {
            max_recv_dtos: 8,
            max_recv_iov: 1,
            low_watermark: None,
        };
        let first = UserEngine::create_srq(&pz, &attr, Token(1)).unwrap();
        UserEngine::arm_srq_limit(&first, 4).unwrap();
        assert_eq!(hub.state.lock().events.len(), 1);
        let number = first.id;
        drop(first);
        let second = UserEngine::create_srq(&pz, &attr, Token(2)).unwrap();
        assert_eq!(second.id, number);
        assert!(hub.state.lock().events.is_empty());
        UserEngine::arm_srq_limit(&second, 4).unwrap();
        assert_eq!(hub.state.lock().events.len(), 1);
    }

    /// dat_ia_close while a request is about to be told of: the port is free afterwards.
    #[test]
    fn a_request_that_nobody_is_told_of_does_not_keep_its_hub() {
        let hub = hub("127.77.5.2");
        let asked = ConnectRequest {
            service_id: 7,
            remote: (hub.place.address, 8).into(),
            initiator_depth: 0,
            responder_resources: 0,
            private_data: Box::default(),
        };
        let id = hub.with(|state, now| {
            let question = softrxe_proto::SidrRequest {
                remote: asked.remote,
                service_id: 7,
                source_port: 0,
                private_data: &[],
            };
            state.engine.sidr_request(now, &question).unwrap()
        });
        let request = ConnRequest::new(&hub, id, &asked);
        let job = Job::Request(Token::default(), request, asked, hub.place.address);
        hub.state.lock().jobs.push_back(job);
        hub.end();
        hub.run();
        assert_eq!(Arc::strong_count(&hub), 1);
    }
}
