//! Verbs devices: listing, opening and querying.

use std::ffi::CStr;
use std::ptr::NonNull;

use crate::sys;

/// Vendor number of Linux' Soft-RoCE.
pub(crate) const VENDOR_RXE: u32 = 0x00ff_ffff;
/// Vendor number of Linux' Soft-iWARP.
pub(crate) const VENDOR_SIW: u32 = 0x0062_6d74;
/// Vendor name of rdma_rxe.
pub(crate) const SOFT_ROCE: &str = "Linux Soft-RoCE";

/// Vendor name of siw.
pub(crate) const SOFT_IWARP: &str = "Linux Soft-iWARP";

/// `ibv_transport_type`, reduced to the distinctions that matter here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    /// The InfiniBand transport over any link layer, RoCE included.
    InfiniBand,
    /// iWARP.
    Iwarp,
    /// usNIC, or an unknown transport.
    Other,
}

impl Transport {
    fn of(number: i32) -> Self {
        match number {
            0 => Self::InfiniBand,
            1 => Self::Iwarp,
            _ => Self::Other,
        }
    }
}

/// An open device (`ibv_context`).
pub(crate) struct Device {
    context: NonNull<sys::ibv_context>,
    name: String,
    guid: u64,
}

// SAFETY: libibverbs locks inside a context; the structure itself is never changed once the device is open.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Returns true for the drivers of rdma-core that hand posted requests to the kernel (those that call `ibv_cmd_post_send`): rdma_rxe, siw,
/// qib and hfi1. All others ring a doorbell in mapped memory.
fn posts_by_kernel(vendor: u32) -> bool {
    const QIB_AND_HFI1: u32 = 0x0000_1175;
    matches!(vendor, VENDOR_RXE | VENDOR_SIW | QIB_AND_HFI1)
}

/// Runs `f` on the device list, then frees the list.
fn with_devices<R>(f: impl FnOnce(&[*mut sys::ibv_device]) -> R) -> R {
    let mut count = 0;
    // SAFETY: `count` is valid for the write; NULL means no list.
    let list = unsafe { sys::ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return f(&[]);
    }
    // SAFETY: libibverbs returned `count` valid entries.
    let result =
        f(unsafe { std::slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0)) });
    // SAFETY: the list came from ibv_get_device_list and is not used any more.
    unsafe { sys::ibv_free_device_list(list) };
    result
}

fn name_of(device: *mut sys::ibv_device) -> String {
    // SAFETY: `device` is an entry of a live list (or of an open context); its name is NUL-terminated.
    unsafe { CStr::from_ptr(sys::ibv_get_device_name(device)) }
        .to_string_lossy()
        .into_owned()
}

/// Returns the names of the verbs devices of this machine.
pub(crate) fn names() -> Vec<String> {
    with_devices(|list| list.iter().map(|d| name_of(*d)).collect())
}

/// Returns the name of the device of a librdmacm id's context.
pub(crate) fn name_of_context(context: *mut sys::ibv_context) -> String {
    // SAFETY: a bound id's context is open for as long as librdmacm is loaded.
    name_of(unsafe { (*context).device })
}

impl Device {
    /// Opens the device called `name`; `None` if there is no such device, an errno if it does not open.
    pub(crate) fn open(name: &str) -> Option<Result<Self, i32>> {
        with_devices(|list| {
            let device = *list.iter().find(|d| name_of(**d) == name)?;
            // SAFETY: `device` is an entry of a live list.
            let context = unsafe { sys::ibv_open_device(device) };
            Some(match NonNull::new(context) {
                None => Err(sys::errno()),
                Some(context) => Ok(Self {
                    context,
                    name: name.to_owned(),
                    // SAFETY: as above.
                    guid: u64::from_be(unsafe { sys::ibv_get_device_guid(device) }),
                }),
            })
        })
    }

    /// Returns the data path functions.
    pub(crate) fn calls(&self) -> Option<sys::Calls> {
        // SAFETY: the context is open.
        let context = unsafe { self.context.as_ref() };
        let vendor = self.query().map_or(0, |attr| attr.vendor_id);
        sys::Calls::of(context, posts_by_kernel(vendor))
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_context {
        self.context.as_ptr()
    }

    /// Returns the device's name, e.g. `rxe0`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the device's transport.
    pub(crate) fn transport(&self) -> Transport {
        // SAFETY: the context is open, and its device is as long.
        Transport::of(unsafe { (*self.context.as_ref().device).transport_type })
    }

    /// Returns the node GUID.
    pub(crate) fn guid(&self) -> u64 {
        self.guid
    }

    /// Returns true if completion queues can grow; siw's cannot.
    pub(crate) fn resizes_queues(&self) -> bool {
        const LENGTHS: [i32; 2] = [1, 2];
        let null = std::ptr::null_mut();
        // SAFETY: the context is open; a queue needs neither a token nor a channel, and vector 0 always exists.
        let cq = unsafe { sys::ibv_create_cq(self.raw(), LENGTHS[0], null, null.cast(), 0) };
        if cq.is_null() {
            return true;
        }
        // SAFETY: made above, and nothing uses it.
        let resized = unsafe { sys::ibv_resize_cq(cq, LENGTHS[1]) };
        // SAFETY: as above.
        unsafe { sys::ibv_destroy_cq(cq) };
        !matches!(resized, libc::ENOSYS | libc::EOPNOTSUPP)
    }

    /// Returns the descriptor of asynchronous events.
    pub(crate) fn async_fd(&self) -> i32 {
        // SAFETY: the context is open.
        unsafe { self.context.as_ref() }.async_fd
    }

    /// Calls `ibv_query_device`.
    pub(crate) fn query(&self) -> Result<sys::ibv_device_attr, i32> {
        // SAFETY: all-zero is a valid value of this plain C struct.
        let mut attr: sys::ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, `attr` is valid for the write.
        match unsafe { sys::ibv_query_device(self.raw(), &raw mut attr) } {
            0 => Ok(attr),
            e => Err(e),
        }
    }

    /// Calls `ibv_query_port`.
    pub(crate) fn query_port(&self, port: u8) -> Result<sys::ibv_port_attr, i32> {
        // SAFETY: all-zero is a valid value of this plain C struct.
        let mut attr: sys::ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the exported function writes the first part of ibv_port_attr, all of which `attr` has.
        match unsafe { sys::ibv_query_port(self.raw(), port, &raw mut attr) } {
            0 => Ok(attr),
            e => Err(e),
        }
    }

    /// Returns entry `index` of the port's GID table; `None` if it is empty.
    pub(crate) fn gid(&self, port: u8, index: i32) -> Option<[u8; 16]> {
        let mut gid = sys::ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open, `gid` is valid for the write.
        let result = unsafe { sys::ibv_query_gid(self.raw(), port, index, &raw mut gid) };
        // SAFETY: every bit pattern is a valid byte array.
        let raw = unsafe { gid.raw };
        (result == 0 && raw != [0; 16]).then_some(raw)
    }

    /// Returns true if entry `index` of the port's GID table is of type RoCE v2.
    pub(crate) fn is_roce_v2(&self, port: u8, index: i32) -> bool {
        let name = &self.name;
        let kind = format!("/sys/class/infiniband/{name}/ports/{port}/gid_attrs/types/{index}");
        std::fs::read_to_string(kind).is_ok_and(|kind| kind.trim() == "RoCE v2")
    }

    /// Returns the next asynchronous event of this context, if there is one (the descriptor is non-blocking). The
    /// event is acknowledged at once: `context_of` has copied the field that is needed.
    pub(crate) fn next_event(&self) -> Option<(i32, u64)> {
        let mut event = sys::AsyncEvent {
            element: std::ptr::null_mut(),
            number: 0,
        };
        // SAFETY: `event` is valid for the write.
        if unsafe { sys::ibv_get_async_event(self.raw(), &raw mut event) } != 0 {
            return None;
        }
        let context = context_of(&event);
        // SAFETY: `event` is the one just read.
        unsafe { sys::ibv_ack_async_event(&raw mut event) };
        Some((event.number, context))
    }
}

/// Returns the token that the object of `event` was created with; 0 for events without an object.
fn context_of(event: &sys::AsyncEvent) -> u64 {
    let context = match event.number {
        sys::event::CQ_ERR => {
            // SAFETY: a CQ event's element is a CQ that cannot be destroyed before the event is acknowledged.
            unsafe { (*event.element.cast::<sys::ibv_cq>()).cq_context }
        }
        sys::event::QP_FATAL
        | sys::event::QP_REQ_ERR
        | sys::event::QP_ACCESS_ERR
        | sys::event::QP_LAST_WQE_REACHED => {
            // SAFETY: likewise for a QP.
            unsafe { (*event.element.cast::<sys::ibv_qp>()).qp_context }
        }
        sys::event::SRQ_ERR | sys::event::SRQ_LIMIT_REACHED => {
            // SAFETY: likewise for an SRQ.
            unsafe { (*event.element.cast::<sys::ibv_srq>()).srq_context }
        }
        _ => return 0,
    };
    context as usize as u64
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: everything made from the context holds the adapter that holds this, so nothing is left.
        unsafe { sys::ibv_close_device(self.raw()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_verbs_h_s() {
        assert_eq!(Transport::of(0), Transport::InfiniBand);
        assert_eq!(Transport::of(1), Transport::Iwarp);
        for usnic_unspecified_unknown in [2, 3, 4, 5, 6, -1] {
            assert_eq!(Transport::of(usnic_unspecified_unknown), Transport::Other);
        }
    }

    #[test]
    fn software_devices_post_by_the_kernel_and_adapters_do_not() {
        assert!(posts_by_kernel(0x00ff_ffff));
        assert!(posts_by_kernel(0x0062_6d74));
        for mellanox_broadcom_intel in [0x02c9, 0x14e4, 0x8086] {
            assert!(!posts_by_kernel(mellanox_broadcom_intel));
        }
    }
}
