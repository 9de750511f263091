//! DAT provider for Soft-RoCE, kernel and user-space.
pub mod user;
