//! Layout of the memory that the kernel's program and the reader of a receive ring share.
//!
//! | offset | content | written by |
//! |---:|---|---|
//! | 0 | [`WORD`]: the number of datagrams that entered the program, and [`TO_SOCKET`] | program, reader |
//! | 8 | [`HEAD`]: position of the next slot to reserve | program |
//! | 64 | [`TURNS`]: how often a run of the program set [`TO_SOCKET`] | program |
//! | 128 | [`FREED`]: position of the first slot that is not free, as the program reads it | reader |
//! | 192 | [`TAKEN`]: position of the first slot that was not taken | reader |
//! | 256 | [`MAGIC`] | creator |
//! | 4096 | [`SLOTS`] slots of [`SLOT`] bytes | program |
//!
//! Each group has a cache line of its own, so that a reader that polls touches no line that the program writes, except
//! that of the next slot. Positions count up and never wrap; `position % SLOTS` is the slot.

/// Number of datagrams that entered the program, with [`TO_SOCKET`] as its highest bit. One atomic addition counts a
/// datagram and reads the mode.
pub(super) const WORD: usize = 0;
/// All datagrams pass to the socket.
pub(super) const TO_SOCKET: u64 = 1 << 63;
/// Position of the next slot to reserve.
pub(super) const HEAD: usize = 8;
/// Number of runs of the program that set [`TO_SOCKET`].
pub(super) const TURNS: usize = 64;
/// Position up to which slots are free again, as the program sees it. The reader writes it rarely.
pub(super) const FREED: usize = 128;
/// Position up to which slots were taken. The program does not read it; the next reader begins there.
pub(super) const TAKEN: usize = 192;
/// Place of [`MAGIC`].
pub(super) const MAGIC_AT: usize = 256;
/// Identifies this layout.
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"datring1");

/// Offset of the first slot.
pub(super) const FIRST_SLOT: usize = 4096;
/// Number of slots.
pub(super) const SLOTS: u64 = 256;
/// Bytes of a slot, as a power of two.
pub(super) const SLOT_BITS: u32 = 9;
/// Bytes of a slot.
pub(super) const SLOT: usize = 1 << SLOT_BITS;
/// Bytes of the memory.
pub(super) const SIZE: usize = FIRST_SLOT + SLOTS as usize * SLOT;

/// In a slot: position plus one, once the slot is filled.
pub(super) const SEQUENCE: usize = 0;
/// In a slot: bytes of UDP header and payload (u32); 0 for a slot without a datagram.
pub(super) const LENGTH: usize = 8;
/// In a slot: bytes of each datagram of a coalesced run (u32); 0 for a single datagram.
pub(super) const SEGMENT: usize = 12;
/// In a slot: IP address of the sender, of 4 or 16 bytes.
pub(super) const SOURCE: usize = 16;
/// In a slot: UDP header, then payload.
pub(super) const DATA: usize = 32;
/// Bytes of a UDP header.
pub(super) const UDP_HEADER: usize = 8;
/// Largest length of UDP header and payload that a slot has room for.
pub(super) const ROOM: usize = SLOT - DATA;

/// Returns the offset of the slot at `position`.
pub(super) const fn slot(position: u64) -> usize {
    FIRST_SLOT + ((position & (SLOTS - 1)) as usize) * SLOT
}

const _: () = assert!(SLOTS.is_power_of_two() && SIZE.is_multiple_of(4096));
