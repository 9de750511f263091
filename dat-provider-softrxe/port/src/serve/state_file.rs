//! The file with the claims of an address, which outlives a restart of `dat serve-port`.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::credentials::own_uid;
use crate::message::Destination;

/// Creates the folder, or verifies that no other user can write there.
pub(super) fn prepare_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        done => return done,
    }
    let found = std::fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != own_uid() || found.mode() & 0o022 != 0 {
        let words = format!(
            "it must be a folder of user {} in which no other user can write",
            own_uid()
        );
        return Err(io::Error::other(words));
    }
    Ok(())
}

/// Writes one line for each claim: `slot` or `service`, number, uid.
pub(super) fn write(path: &Path, all: &[(Destination, u32)]) -> io::Result<()> {
    let mut lines = Vec::new();
    for (what, uid) in all {
        match what {
            Destination::Slot(slot) => writeln!(lines, "slot {slot} {uid}")?,
            Destination::Service(id) => writeln!(lines, "service {id} {uid}")?,
        }
    }
    // The whole name: names of several addresses have a common prefix.
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    // A server that was killed may have left a temporary file.
    match std::fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&next)?;
    file.write_all(&lines)?;
    std::fs::rename(next, path)
}

/// Reads the claims; none if there is no file.
pub(super) fn read(path: &Path) -> Vec<(Destination, u32)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| {
        let (what, uid) = line.rsplit_once(' ')?;
        let what = match what.split_once(' ')? {
            ("slot", slot) => Destination::Slot(slot.parse().ok()?),
            ("service", id) => Destination::Service(id.parse().ok()?),
            _ => return None,
        };
        Some((what, uid.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        prepare_folder(&state).unwrap();
        prepare_folder(&state).unwrap();
        let path = state.join("127.0.0.1");
        assert_eq!(read(&path), []);
        let all = [
            (Destination::Slot(5), 0),
            (Destination::Service(u64::MAX), 65_534),
        ];
        write(&path, &all).unwrap();
        assert_eq!(read(&path), all);
        std::fs::write(
            &path,
            "slot 5\nslot 70000 1\nservice x 1\nother 1 1\n\nslot 6 7\n",
        )
        .unwrap();
        assert_eq!(read(&path), [(Destination::Slot(6), 7)]);
    }

    #[test]
    fn two_addresses_do_not_write_to_one_file_and_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        // Files that a server of the other address, or a killed server of this address, has left there.
        std::fs::write(file("127.66.0.next"), "of the other").unwrap();
        std::fs::write(file("target"), "kept").unwrap();
        std::os::unix::fs::symlink(file("target"), file("127.66.0.9.next")).unwrap();
        for name in ["127.66.0.8", "127.66.0.9"] {
            write(&file(name), &[(Destination::Slot(8), 7)]).unwrap();
            assert_eq!(read(&file(name)), [(Destination::Slot(8), 7)]);
        }
        let text = |name: &str| std::fs::read_to_string(file(name)).unwrap();
        assert_eq!(text("127.66.0.next"), "of the other");
        assert_eq!(text("target"), "kept");
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open).unwrap();
        assert!(prepare_folder(folder.path()).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        assert!(prepare_folder(&link).is_err());
    }
}
