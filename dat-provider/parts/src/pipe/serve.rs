//! Execution of the peer's requests.

use dat_core::event::DtoStatus;
use dat_core::flags::MemPriv;
use dat_core::iov::RmrTriplet;
use dat_core::transport::Transport;
use dat_core::upcall::ConnOutcome;

use super::frame::{Frame, Kind, MAX_MESSAGE};
use super::{Link, Qp, State};
use crate::memory;

impl<T: Transport> Qp<T> {
    /// Executes and answers the requests that arrived, until one has to wait for a receive or one fails.
    pub(super) fn serve(&self, state: &mut State) {
        while matches!(state.link, Link::Connected { .. }) {
            let Some(request) = state.arrived.front() else {
                return;
            };
            let takes = matches!(
                request.kind,
                Kind::Send | Kind::SendImmediate | Kind::WriteImmediate
            );
            if takes && state.receives.is_empty() {
                return;
            }
            let Some(request) = state.arrived.pop_front() else {
                return;
            };
            let (status, data) = match self.execute(state, &request) {
                Ok(data) => (DtoStatus::Success, data),
                Err(status) => (status, Vec::new()),
            };
            state.send(&Frame::answer(status, data));
            if status != DtoStatus::Success {
                self.end(state, ConnOutcome::Broken, None);
            }
        }
    }

    /// Executes a request; returns the bytes of the answer.
    fn execute(&self, state: &mut State, request: &Frame) -> Result<Vec<u8>, DtoStatus> {
        let mut answer = Vec::new();
        match request.kind {
            Kind::Send | Kind::SendImmediate => self.deliver(state, request)?,
            Kind::Write => self.write(request)?,
            Kind::WriteImmediate => {
                self.write(request)?;
                if let Some((id, _)) = state.receives.pop_front() {
                    self.complete_receive(id, DtoStatus::Success, Some(request));
                }
            }
            Kind::Read if request.length > MAX_MESSAGE as u64 => {
                return Err(DtoStatus::RemoteResponder);
            }
            Kind::Read => {
                let keys = self.context.keys.lock();
                if request.length != 0 {
                    let at = remote(request);
                    let from = keys.target(self.pz, at, request.length, MemPriv::REMOTE_READ)?;
                    memory::read(&[from], &mut answer).map_err(|_| DtoStatus::RemoteResponder)?;
                }
            }
            Kind::CompareSwap | Kind::FetchAdd => {
                let keys = self.context.keys.lock();
                let word = keys.target(self.pz, remote(request), 8, MemPriv::REMOTE_ATOMIC)?;
                let [first, second] = request.operands;
                let old = memory::update(word, |old| match request.kind {
                    Kind::FetchAdd => old.wrapping_add(first),
                    _ if old == first => second,
                    _ => old,
                });
                answer.extend(old.ok_or(DtoStatus::RemoteResponder)?.to_ne_bytes());
            }
            Kind::Answer | Kind::Goodbye | Kind::Broken => {}
        }
        Ok(answer)
    }

    /// Writes the data of an RDMA Write; a length of 0 accesses nothing and needs no key.
    fn write(&self, request: &Frame) -> Result<(), DtoStatus> {
        if request.data.is_empty() {
            return Ok(());
        }
        let keys = self.context.keys.lock();
        let length = request.data.len() as u64;
        let to = keys.target(self.pz, remote(request), length, MemPriv::REMOTE_WRITE)?;
        memory::write(&request.data, &[to]);
        Ok(())
    }

    /// Delivers a message to the first receive.
    fn deliver(&self, state: &mut State, message: &Frame) -> Result<(), DtoStatus> {
        let Some((id, iov)) = state.receives.pop_front() else {
            return Ok(());
        };
        let keys = self.context.keys.lock();
        let room: u64 = iov.iter().map(|s| u64::from(s.segment_length)).sum();
        let written = if message.data.len() as u64 > room {
            Err(DtoStatus::LocalLength)
        } else {
            keys.segments(self.pz, &iov, MemPriv::LOCAL_WRITE)
                .map(|to| memory::write(&message.data, &to))
        };
        drop(keys);
        match written {
            Ok(_) => self.complete_receive(id, DtoStatus::Success, Some(message)),
            Err(status) => self.complete_receive(id, status, None),
        }
        written.map(|_| ()).map_err(|_| DtoStatus::RemoteResponder)
    }
}

/// Returns the remote address of a request.
const fn remote(request: &Frame) -> RmrTriplet {
    RmrTriplet {
        virtual_address: request.address,
        segment_length: 0,
        rmr_context: request.key,
    }
}
