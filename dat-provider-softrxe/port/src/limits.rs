//! The number of descriptors that this process may open.

fn limits() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable and lives until the return.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    read.then_some(limit)
}

fn to_usize(limit: libc::rlim_t) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Returns the soft limit of descriptors; 0 if the kernel does not show it.
pub(crate) fn descriptor_limit() -> usize {
    limits().map_or(0, |limit| to_usize(limit.rlim_cur))
}

/// Raises the soft limit of descriptors to the hard one, and returns what this process may open then.
pub(crate) fn raise_descriptor_limit() -> usize {
    let Some(limit) = limits() else {
        return 1024;
    };
    let raised = libc::rlimit {
        rlim_cur: limit.rlim_max,
        ..limit
    };
    // SAFETY: a structure of the right type that lives until the return.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0;
    to_usize(if done { limit.rlim_max } else { limit.rlim_cur })
}
