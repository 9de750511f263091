//! Attempts to get a share in the port after its holder has ended.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{PortShare, PortShareError};
use crate::credentials::{SYSTEM_UID, Trust};
use crate::former_share::FormerShare;
use crate::holder::Holder;
use crate::member::Member;
use crate::port_owner::PortOwner;
use crate::shared_socket::SharedSocket;
use crate::socket::Socket;

impl FormerShare {
    /// Becomes the holder of the port of `local` or joins the process that is. Tries once. This may search through
    /// thousands of names, so the caller should hold no lock.
    ///
    /// # Errors
    /// [`PortShareError::Foreign`] and [`PortShareError::NoHolder`] if there is no trusted holder yet.
    pub fn attempt(&self, local: SocketAddr, buffer: usize) -> Result<PortShare, PortShareError> {
        if let Some(uid) = self.holder {
            let joined = Member::join(local, Trust::User(uid), self);
            return joined
                .map(|member| PortShare::Member(Box::new(member)))
                .map_err(|_| PortShareError::NoHolder { local, uid });
        }
        let held = match &self.shared_socket {
            Some(shared) => shared.try_become_holder().then(|| {
                shared.succeed();
                Arc::clone(shared)
            }),
            None => match Socket::bind(local.ip(), local.port(), buffer) {
                Ok(socket) => {
                    let shared = SharedSocket::new(Arc::new(socket));
                    Some(Arc::new(shared.map_err(PortShareError::Lock)?))
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse => None,
                Err(error) => return Err(error.into()),
            },
        };
        if let Some(held) = held {
            let mut holder = Holder::for_user(local.ip(), held)?;
            if self.shared_socket.is_some() {
                holder.start_grace_period(self);
            }
            return Ok(PortShare::Holder(Box::new(holder)));
        }
        for trust in [Trust::Own, Trust::User(SYSTEM_UID)] {
            match Member::join(local, trust, self) {
                Ok(member) => return Ok(PortShare::Member(Box::new(member))),
                Err(error) => tracing::debug!(%error, ?trust, "no holder of the port to join"),
            }
        }
        let owner = PortOwner::of(local);
        Err(PortShareError::Foreign { local, owner })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;
    use crate::credentials::own_uid;

    /// The thread has another root folder, without /proc, as in a container.
    #[test]
    fn a_process_without_proc_is_told_what_the_port_takes() {
        if own_uid() != 0 {
            dat_untested::untested("it takes root");
            return;
        }
        let empty = std::env::temp_dir().join(format!("dat-no-proc-{}", std::process::id()));
        std::fs::create_dir(&empty).unwrap();
        let root = CString::new(empty.to_str().unwrap()).unwrap();
        let local: SocketAddr = "127.77.1.11:47911".parse().unwrap();
        let taken = std::thread::spawn(move || {
            // SAFETY: plain system calls; the path ends with a zero byte.
            let done = unsafe { libc::unshare(libc::CLONE_FS) | libc::chroot(root.as_ptr()) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
            FormerShare::default().attempt(local, 1 << 16)
        });
        let error = taken.join().unwrap().unwrap_err();
        std::fs::remove_dir(empty).unwrap();
        let said = error.to_string();
        assert!(
            said.contains("/proc/self/fd") && said.contains("mount"),
            "{said}"
        );
    }
}
