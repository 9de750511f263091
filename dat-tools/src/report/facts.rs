//! Facts about the machine: kernel, distribution, verbs devices. None of them names the machine.

use std::fs;
use std::path::Path;
use std::thread;

use serde_json::{Map, Value, json};

use crate::machine::names;

/// What sysfs has of a verbs device, without its GUIDs and its node's name.
const OF_DEVICE: [&str; 5] = ["hca_type", "hw_rev", "fw_ver", "board_id", "node_type"];
/// What sysfs has of a port, without its GIDs and LIDs.
const OF_PORT: [&str; 4] = ["state", "phys_state", "rate", "link_layer"];
/// Folders of shared libraries.
const LIBRARIES: [&str; 8] = [
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/powerpc64le-linux-gnu",
    "/usr/lib/s390x-linux-gnu",
];

/// Returns all facts.
pub(super) fn all() -> Value {
    json!({
        "kernel": line(Path::new("/proc/sys/kernel/osrelease")),
        "distribution": distribution(&fs::read_to_string("/etc/os-release").unwrap_or_default()),
        "processor": std::env::consts::ARCH,
        "processors": thread::available_parallelism().map_or(0, usize::from),
        "libraries": libraries(),
        "verbs_devices": devices(Path::new("/sys/class/infiniband")),
    })
}

/// Returns a file's text; none if it cannot be read.
fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn distribution(os_release: &str) -> Option<String> {
    let name = os_release
        .lines()
        .find_map(|l| l.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

/// Returns the versions of rdma-core's libraries, which are parts of their files' names.
fn libraries() -> Vec<String> {
    let mut found: Vec<String> = LIBRARIES
        .iter()
        .flat_map(|folder| names(Path::new(folder)))
        .filter(|name| {
            ["libibverbs.so.", "librdmacm.so.", "libdat2.so."]
                .iter()
                .any(|stem| name.starts_with(stem))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

fn devices(folder: &Path) -> Vec<Value> {
    names(folder)
        .into_iter()
        .map(|name| {
            let at = folder.join(&name);
            let mut device = fields(&at, &OF_DEVICE);
            let driver = fs::read_link(at.join("device/driver")).unwrap_or_default();
            let ports: Vec<Value> = names(&at.join("ports"))
                .into_iter()
                .map(|port| fields(&at.join("ports").join(port), &OF_PORT).into())
                .collect();
            device.insert("name".into(), name.into());
            device.insert(
                "driver".into(),
                driver.file_name().map(|n| n.to_string_lossy()).into(),
            );
            device.insert("ports".into(), ports.into());
            Value::Object(device)
        })
        .collect()
}

/// Returns those of the files that there are.
fn fields(folder: &Path, files: &[&str]) -> Map<String, Value> {
    files
        .iter()
        .filter_map(|file| Some(((*file).to_owned(), line(&folder.join(file))?.into())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_described_without_its_guids() {
        let dir = tempfile::tempdir().expect("a folder");
        let device = dir.path().join("mlx5_0");
        let port = device.join("ports/1");
        fs::create_dir_all(&port).expect("made");
        for (file, text) in [
            ("fw_ver", "16.35.2000\n"),
            ("node_guid", "b859:9f03:00d0:1234\n"),
            ("node_desc", "secret HCA-1\n"),
            ("ports/1/state", "4: ACTIVE\n"),
        ] {
            fs::write(device.join(file), text).expect("written");
        }
        let found = devices(dir.path());
        assert_eq!(found[0]["name"], "mlx5_0");
        assert_eq!(found[0]["fw_ver"], "16.35.2000");
        assert_eq!(found[0]["ports"][0]["state"], "4: ACTIVE");
        let text = found[0].to_string();
        assert!(!text.contains("b859") && !text.contains("secret"), "{text}");
        assert_eq!(
            distribution("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n").as_deref(),
            Some("Debian GNU/Linux 12")
        );
    }
}
