//! What our providers do in a forked child. They register it with pthread_atfork(3) when they open something. If a fork has begun by
//! then, the C library does not call it. So the C libraries, whose own handler comes first, run it as well.

use dat_os::fork::Children;

/// `dat_rs_forked` of the libraries that were loaded. Beyond 64 of them, only the C library calls what they registered.
pub static CHILDREN: Children<64> = Children::new();
