//! RoCEv2 without I/O: wire formats, reliable connection, connection manager.
#![forbid(unsafe_code)]
