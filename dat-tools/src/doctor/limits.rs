//! Limits of this process that programs with RDMA reach.

use std::fs;

use super::finding::{Finding, State};

/// Locked memory below which even small programs fail, in bytes.
const LITTLE_MEMORY: u64 = 8 << 20;
/// Descriptors below which programs with many connections fail.
const FEW_DESCRIPTORS: u64 = 1024;

/// Examines the limits.
pub(super) fn all() -> Vec<Finding> {
    let text = match fs::read_to_string("/proc/self/limits") {
        Ok(text) => text,
        Err(error) => {
            let text = format!("cannot read /proc/self/limits: {error}");
            return vec![Finding::bad(
                "limits",
                State::Unknown,
                text,
                "mount -t proc proc /proc",
            )];
        }
    };
    vec![
        memory(soft(&text, "Max locked memory")),
        descriptors(soft(&text, "Max open files")),
    ]
}

/// Returns the soft limit of a line; `None` is unlimited.
fn soft(text: &str, line: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(line))?;
    line.split_whitespace().next()?.parse().ok()
}

fn memory(limit: Option<u64>) -> Finding {
    const CHECK: &str = "memory lock";
    match limit {
        None => Finding::ok(CHECK, "unlimited"),
        Some(bytes) if bytes >= LITTLE_MEMORY => Finding::ok(CHECK, format!("{} kB", bytes >> 10)),
        Some(bytes) => Finding::bad(
            CHECK,
            State::Warning,
            format!(
                "{} kB may be locked; registered memory is (the user engine's is not)",
                bytes >> 10
            ),
            "ulimit -l unlimited  # as root, for all later sessions: echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf; \
             for a container: docker run --ulimit memlock=-1",
        ),
    }
}

fn descriptors(limit: Option<u64>) -> Finding {
    const CHECK: &str = "descriptors";
    match limit {
        None => Finding::ok(CHECK, "unlimited"),
        Some(n) if n >= FEW_DESCRIPTORS => Finding::ok(CHECK, format!("{n}")),
        Some(n) => Finding::bad(
            CHECK,
            State::Warning,
            format!("only {n}"),
            "ulimit -n 65536",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_judged() {
        let text = "Limit   Soft  Hard  Units\nMax locked memory         65536   65536  bytes\nMax open files   unlimited 1 files\n";
        assert_eq!(soft(text, "Max locked memory"), Some(65536));
        assert_eq!(soft(text, "Max open files"), None);
        assert_eq!(memory(Some(65536)).state, State::Warning);
        assert_eq!(memory(None).state, State::Ok);
        assert_eq!(descriptors(Some(64)).state, State::Warning);
    }
}
