//! A completion queue without use, which works around a fault of libibverbs' driver for siw.
//!
//! The kernel module and the driver library map queues under offsets, one for each page, from 0 on. The library takes
//! the offset 0x90000 (`SIW_INVAL_UOBJ_KEY`) for a failure of the kernel, which gives it to an object all the same. From
//! then on the process creates no queue pair and no completion queue: the next attempt gets the same offset again. A
//! queue that spans this offset keeps it away from all objects that follow.

use std::ptr::NonNull;

use crate::sys;
use crate::verbs::device::Device;

/// The offset in bytes, at 32 bytes for an entry; the queue is longer.
const SPANNED: i32 = 0x9_0000 / 32 + 1;

/// The queue. It is dropped before its device.
pub(crate) struct Placeholder(NonNull<sys::ibv_cq>);

// SAFETY: libibverbs locks inside; the pointer is used once, in drop.
unsafe impl Send for Placeholder {}
// SAFETY: as above.
unsafe impl Sync for Placeholder {}

impl Placeholder {
    /// Creates the queue as the first object of `device`. Without it the device works up to the fault.
    pub(crate) fn new(device: &Device) -> Option<Self> {
        let null = std::ptr::null_mut();
        // SAFETY: the context is open; a queue needs neither a token nor a channel, and vector 0 always exists.
        NonNull::new(unsafe { sys::ibv_create_cq(device.raw(), SPANNED, null, null.cast(), 0) })
            .map(Self)
    }
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        // SAFETY: made by us and destroyed once, while its device is open.
        unsafe { sys::ibv_destroy_cq(self.0.as_ptr()) };
    }
}
