//! Unreliable datagrams of the IB extension (docs/datagrams.md).

use dat_abi::v2_0::types::ib_op;

use crate::CompletionFlags;
use crate::ep::Ep;
use crate::error::Result;
use crate::extension::{full, operate};
use crate::ids::Side;
use crate::memory::region::Slice;
use crate::peer::Peer;

/// Bytes in front of a received datagram that the adapter uses; the length of the completion includes them.
pub const DATAGRAM_HEADER: usize = 40;

impl Ep {
    /// Sends a datagram to a peer (dat_ib_post_send_ud).
    ///
    /// # Errors
    /// As [`Ep::post_send`]; `DAT_LENGTH_ERROR` for a message above `DAT_IB_TRANSPORT_MTU`.
    pub fn post_send_datagram(
        &self,
        slices: &[Slice<'_>],
        to: &Peer,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        const NAME: &str = "dat_ib_post_send_ud";
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
            unsafe { operate(self.handle(), ib_op::UD_SEND, NAME, &arguments) }
        })
        .map_err(|error| full(error, NAME))
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
