//! DAT provider for any verbs device.
