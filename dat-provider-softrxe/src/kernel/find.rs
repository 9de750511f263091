//! rxe devices and netdevs in sysfs. `sys` is `/sys/class`.

use std::fs;
use std::path::Path;

/// An rdma_rxe device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RxeDevice {
    /// Name of the device, for example `rxe0`.
    pub name: String,
    /// Name of its netdev.
    pub netdev: String,
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .map(|list| {
            list.flatten()
                .filter_map(|e| e.file_name().into_string().ok())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

/// Lists the rxe devices. Only the driver rdma_rxe has the attribute `parent`, the netdev's name.
#[must_use]
pub fn rxe_devices(sys: &Path) -> Vec<RxeDevice> {
    let folder = sys.join("infiniband");
    names(&folder)
        .into_iter()
        .filter_map(|name| {
            let netdev = text(&folder.join(&name).join("parent"))?;
            Some(RxeDevice { name, netdev })
        })
        .collect()
}

/// Lists the netdevs except loopback.
#[must_use]
pub fn netdevs(sys: &Path) -> Vec<String> {
    let mut list = names(&sys.join("net"));
    list.retain(|n| n != super::LOOPBACK);
    list
}

/// Returns the first of rxe0, rxe1 ... that is not the name of a device, and not among `tried`.
#[must_use]
pub fn free_name(sys: &Path, tried: &[String]) -> String {
    let mut taken = names(&sys.join("infiniband"));
    taken.extend_from_slice(tried);
    let mut number = 0_u32;
    loop {
        let name = format!("rxe{number}");
        if !taken.contains(&name) {
            return name;
        }
        number += 1;
    }
}

/// Returns whether the device `name` has its node below `dev`.
#[must_use]
pub fn is_open_to_users(sys: &Path, dev: &Path, name: &str) -> bool {
    let folder = sys.join("infiniband_verbs");
    names(&folder)
        .iter()
        .filter(|node| text(&folder.join(node).join("ibdev")).as_deref() == Some(name))
        .any(|node| dev.join("infiniband").join(node).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn only_devices_with_a_parent_are_rxe() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path();
        assert_eq!(rxe_devices(sys), []);
        assert_eq!(free_name(sys, &[]), "rxe0");
        write(sys, "infiniband/mlx5_0/node_guid", "0");
        write(sys, "infiniband/rxe0/parent", "v0\n");
        write(sys, "infiniband/rxe2/parent", "eth1\n");
        let expected = [("rxe0", "v0"), ("rxe2", "eth1")].map(|(name, netdev)| RxeDevice {
            name: name.into(),
            netdev: netdev.into(),
        });
        assert_eq!(rxe_devices(sys), expected);
        assert_eq!(free_name(sys, &[]), "rxe1");
    }

    #[test]
    fn loopback_is_not_listed() {
        let root = tempfile::tempdir().unwrap();
        for netdev in ["lo", "v1", "v0"] {
            fs::create_dir_all(root.path().join("net").join(netdev)).unwrap();
        }
        assert_eq!(netdevs(root.path()), ["v0", "v1"]);
    }

    #[test]
    fn a_device_is_open_once_its_node_exists() {
        let root = tempfile::tempdir().unwrap();
        let (sys, dev) = (root.path().join("sys"), root.path().join("dev"));
        write(&sys, "infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
        write(&sys, "infiniband_verbs/uverbs1/ibdev", "rxe0\n");
        write(&dev, "infiniband/uverbs0", "");
        assert!(!is_open_to_users(&sys, &dev, "rxe0"));
        write(&dev, "infiniband/uverbs1", "");
        assert!(is_open_to_users(&sys, &dev, "rxe0"));
    }
}
