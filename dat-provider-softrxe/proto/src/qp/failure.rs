//! Failures: a request that fails, and the end of a queue pair, which flushes what is outstanding.

use super::Qp;
use super::keepalive::KeepAlive;
use super::state::{QpInput, QpState};
use crate::event::Event;
use crate::outputs::Context;
use crate::work::Status;

impl Qp {
    /// Fails request `seq`, which cannot be sent. It completes with `status` once the requests before it are answered, as
    /// those may have been delivered.
    pub(super) fn fail_request<M>(&mut self, cx: &mut Context<'_, M>, seq: u32, status: Status) {
        if self.requester.ring.head() == seq {
            self.fail_head(cx, status);
        } else {
            self.requester.failed = Some((seq, status));
        }
    }

    /// Completes the oldest request with `status` and fails the queue pair.
    pub(super) fn fail_head<M>(&mut self, cx: &mut Context<'_, M>, status: Status) {
        if let Some((wr_id, op)) = self.requester.pop() {
            self.complete_send(cx, wr_id, op, status, 0);
        }
        self.fail(cx, Some(status));
    }

    /// Moves to Error and flushes everything. With `raise`, raises an event with that status.
    pub(crate) fn fail<M>(&mut self, cx: &mut Context<'_, M>, raise: Option<Status>) {
        if self.state == QpState::Error {
            return;
        }
        self.step(QpInput::Fail);
        if let Some(status) = raise {
            self.log_failure(status);
            cx.out.events.push_back(Event::QpError {
                qpn: self.qpn,
                connection: self.cm,
                token: self.init.token,
                status,
            });
        }
        self.requester.stop();
        self.keepalive = KeepAlive::default();
        self.flush_sends(cx);
        if let Some(receive) = self.responder.abandon() {
            self.complete_receive(cx, receive.wr_id, Status::Flushed);
        }
        self.flush_receives(cx);
    }

    /// Logs why the connection breaks: the event of the consumer has no reason.
    #[cold]
    fn log_failure(&self, status: Status) {
        let peer = self.path.as_ref().map(|path| path.remote);
        let peer = peer.map(tracing::field::display);
        tracing::info!(peer, qpn = ?self.qpn, ?status, "a connection breaks: {}", status.reason());
    }

    pub(super) fn flush_sends<M>(&mut self, cx: &mut Context<'_, M>) {
        while let Some((wr_id, op)) = self.requester.pop() {
            self.complete_send(cx, wr_id, op, Status::Flushed, 0);
        }
    }

    pub(crate) fn flush_receives<M>(&mut self, cx: &mut Context<'_, M>) {
        while let Some(receive) = self.receives.pop() {
            self.complete_receive(cx, receive.wr_id, Status::Flushed);
        }
    }
}
