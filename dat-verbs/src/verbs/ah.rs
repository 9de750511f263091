//! Address handles: destinations of datagrams.

use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::adapter::Shared;
use crate::sys;
use crate::verbs::pd::Pd;

/// `ibv_ah`, and the Q_Key that the destination queue pairs require.
pub struct AddressHandle {
    ah: NonNull<sys::ibv_ah>,
    pub(crate) qkey: u32,
    pd: Arc<Pd>,
}

// SAFETY: an address handle never changes, posts only read it.
unsafe impl Send for AddressHandle {}
// SAFETY: as above.
unsafe impl Sync for AddressHandle {}

impl std::fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AddressHandle")
            .field("ah", &self.ah)
            .field("qkey", &self.qkey)
            .finish_non_exhaustive()
    }
}

impl AddressHandle {
    /// Creates the handle for `attr`; the errno on failure.
    pub(crate) fn new(pd: &Arc<Pd>, attr: &sys::ibv_ah_attr, qkey: u32) -> Result<Self, i32> {
        let mut attr = *attr;
        // SAFETY: the PD is open, `attr` is valid.
        let ah = unsafe { sys::ibv_create_ah(pd.raw(), &raw mut attr) };
        let ah = NonNull::new(ah).ok_or_else(sys::errno)?;
        Ok(Self {
            ah,
            qkey,
            pd: Arc::clone(pd),
        })
    }

    /// Creates the handle for the adapter with the address `to`; `lid` is its LID, which only InfiniBand ports have.
    pub(crate) fn to(pd: &Arc<Pd>, to: IpAddr, lid: u16, qkey: u32) -> Result<Self, i32> {
        let shared = &pd.adapter.shared;
        // SAFETY: all-zero is a valid value of this plain C struct.
        let mut attr: sys::ibv_ah_attr = unsafe { std::mem::zeroed() };
        attr.port_num = shared.port;
        if shared.roce {
            attr.is_global = 1;
            attr.grh.dgid = sys::ibv_gid { raw: gid(to) };
            attr.grh.sgid_index = own_gid(shared).ok_or(libc::EADDRNOTAVAIL)?;
            attr.grh.hop_limit = 64;
            attr.grh.traffic_class = shared.settings.tos.unwrap_or(0);
        } else {
            attr.dlid = lid;
        }
        Self::new(pd, &attr, qkey)
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_ah {
        self.ah.as_ptr()
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: made by us and destroyed once; its PD is still there.
        let result = unsafe { sys::ibv_destroy_ah(self.raw()) };
        if result != 0 {
            tracing::warn!(pd = ?self.pd.raw(), "ibv_destroy_ah: {}", crate::convert::text(result));
        }
    }
}

/// Returns the GID of an IP address on RoCE.
pub(crate) fn gid(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Returns the index of our own address in the port's GID table: the entry for RoCE v2 if there are several.
fn own_gid(shared: &Shared) -> Option<u8> {
    let wanted = gid(shared.attr.address);
    let ours = |index: &i32| shared.device.gid(shared.port, *index) == Some(wanted);
    let is_v2 = |index: &i32| shared.device.is_roce_v2(shared.port, *index);
    let index = (0..256).filter(ours).find(is_v2);
    let index = index.or_else(|| (0..256).find(ours))?;
    u8::try_from(index).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_is_a_mapped_gid() {
        let mapped = gid("10.9.0.1".parse().unwrap());
        assert_eq!(mapped[10..], [0xff, 0xff, 10, 9, 0, 1]);
        assert_eq!(gid("fd09::1".parse().unwrap())[..2], [0xfd, 9]);
    }
}
