//! Unreliable datagrams of the IB extension (docs/datagrams.md).

use dat_abi::v2_0::types::ib_op;

use crate::CompletionFlags;
use crate::ep::Ep;
use crate::error::Result;
use crate::extension::{operate, operate_post};
use crate::ids::Side;
use crate::memory::region::Slice;
use crate::peer::Peer;
use crate::post_error::{PostCall, PostError};

/// Bytes in front of a received datagram that the adapter uses; the length of the completion includes them.
///
/// Example: [`Ep::post_send_datagram`].
pub const DATAGRAM_HEADER: usize = 40;

impl Ep {
    /// Sends a datagram to a peer (dat_ib_post_send_ud).
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Access, CompletionFlags, DATAGRAM_HEADER, Event, Ia, Streams};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let ia = Ia::open("softrxe-lo")?;
    /// # let pz = ia.create_pz()?;
    /// # let patience = Duration::from_secs(60);
    /// let done = ia.create_evd(64, Streams::DTO)?;
    /// let events = ia.create_evd(64, Streams::CR | Streams::CONNECTION)?;
    /// let endpoint = || ia.endpoint(&pz).datagrams().recv_evd(&done).request_evd(&done).connect_evd(&events).create();
    /// let (here, there) = (endpoint()?, endpoint()?);
    /// let listener = ia.listen(None, &events)?;
    /// here.connect(ia.attributes()?.address, listener.conn_qual()).start()?; // finds `there`
    /// let Event::Request(request) = events.wait(patience)? else { panic!() };
    /// request.accept(&there, b"")?;
    /// # let mut found = None;
    /// # while found.is_none() {
    /// #     if let Event::Datagram { ep, peer, .. } = events.wait(patience)? && ep == here.id() { found = peer; }
    /// # }
    /// # let event = (here.id(), found);
    /// # let (_, Some(peer)) = event else { panic!() };
    /// // An Event::Datagram of `here` has the `peer`.
    /// let room = pz.allocate(1024, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
    /// there.post_recv(&[room.slice(0..512)], 1)?;
    /// room.write(512, b"hello");
    /// here.post_send_datagram(&[room.slice(512..517)], &peer, 2, CompletionFlags::SUPPRESS)?;
    /// let got = done.wait_completion(patience)?;
    /// assert_eq!(room.to_vec(DATAGRAM_HEADER..got.length as usize), b"hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Ep::post_send`]; `DAT_LENGTH_ERROR` for a message above `DAT_IB_TRANSPORT_MTU`.
    pub fn post_send_datagram(
        &self,
        slices: &[Slice<'_>],
        to: &Peer,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), PostError> {
        const NAME: PostCall = PostCall::Datagram;
        let s = self.segments(slices, NAME)?;
        let arguments = [
            s.count() as u64,
            s.as_ptr() as u64,
            &raw const to.address as u64,
            cookie,
            flags.bits().into(),
        ];
        self.counted(Side::Requests, flags, || {
            // SAFETY: the arguments are those of the operation; the pointers are valid during the call.
            unsafe { operate_post(self.handle(), ib_op::UD_SEND, NAME, &arguments) }
        })
    }

    /// Gives a peer back (dat_ib_ud_ah_free and dat_ib_ud_cm_free): what the provider keeps for it is freed before the endpoint is.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call) if it was given back before.
    pub fn forget_peer(&self, peer: &Peer) -> Result<()> {
        let address = [&raw const peer.address as u64];
        // SAFETY: the operation takes an address handle.
        unsafe {
            operate(
                self.handle(),
                ib_op::UD_AH_FREE,
                "dat_ib_ud_ah_free",
                &address,
            )?;
        };
        // SAFETY: the operation takes the context of the event.
        unsafe {
            operate(
                self.handle(),
                ib_op::UD_CM_FREE,
                "dat_ib_ud_cm_free",
                &[peer.context],
            )
        }
    }
}
