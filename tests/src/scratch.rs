//! Folders of a test process.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Makes a folder that is removed when this process has ended, however it ends: a value in a static is never dropped, and a prefix
/// of the libraries takes half a gigabyte.
///
/// # Panics
/// If the folder cannot be made, or no shell can be started.
#[must_use]
pub fn folder_of_process() -> PathBuf {
    let folder = tempfile::tempdir().expect("a folder").keep();
    // The kernel closes the other end of the shell's input with this process.
    let shell = Command::new("sh")
        .args(["-c", "trap '' HUP INT TERM; read -r _; rm -rf \"$0\""])
        .arg(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell");
    std::mem::forget(shell);
    folder
}
