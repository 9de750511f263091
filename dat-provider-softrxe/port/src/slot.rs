//! Slots: the top bits of queue pair numbers and of communication ids, which name one engine of an address.

/// Bits of a queue pair number (24) and of a communication id (32) that hold the slot.
pub const SLOT_BITS: u32 = 10;
/// Slots of an address. No engine has slot 0, because queue pair numbers 0 and 1 are special.
pub const SLOTS: u16 = 1 << SLOT_BITS;

/// Returns the slot of a queue pair number.
#[must_use]
pub const fn slot_of_qpn(qpn: u32) -> u16 {
    (qpn >> (24 - SLOT_BITS)) as u16 & (SLOTS - 1)
}

/// Returns the slot of a communication id.
#[must_use]
pub const fn slot_of_comm_id(id: u32) -> u16 {
    (id >> (32 - SLOT_BITS)) as u16
}
