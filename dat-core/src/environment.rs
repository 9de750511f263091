//! The environment variables of OpenFabrics DAPL 2.1.10 that administrators set for their programs (`DAPL_*`, `DAT_*`). An adapter
//! honours those that it has a setting for; each other one causes one warning that it has no effect.

use std::collections::BTreeSet;
use std::sync::Mutex;

use dat_os::mutex::lock;

/// An environment variable of DAPL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Name of the variable.
    pub name: &'static str,
    /// Hint for the administrator: the replacement of the variable.
    pub replacement: &'static str,
}

macro_rules! variables {
    ($($replacement:literal: $($name:literal)+;)*) => {
        /// Every variable that DAPL 2.1.10, its providers and its libdat2 read, except `DAT_OVERRIDE` and `DAT_DBG_TYPE`, which
        /// have the same effect here.
        pub const VARIABLES: &[Variable] = &[$($(Variable { name: $name, replacement: $replacement },)+)*];
    };
}

variables! {
    "this engine has no such setting": "DAPL_MAX_INLINE" "DAPL_WR_MAX" "DAPL_IB_MTU" "DAPL_ACK_RETRY" "DAPL_ACK_TIMER"
        "DAPL_RNR_RETRY" "DAPL_RNR_TIMER" "DAPL_CM_TOS" "DAPL_CM_ARP_TIMEOUT_MS" "DAPL_CM_ARP_RETRY_COUNT"
        "DAPL_CM_ROUTE_TIMEOUT_MS" "DAPL_CM_ROUTE_RETRY_COUNT";
    "give dat_ep_connect a timeout": "DAPL_MAX_CM_RESPONSE_TIME" "DAPL_MAX_CM_RETRIES";
    "partition and service level are the connection manager's": "DAPL_IB_PKEY" "DAPL_IB_SL";
    "RoCE always has a GRH; set tos in ia_params": "DAPL_GLOBAL_ROUTING" "DAPL_HOP_LIMIT" "DAPL_TCLASS";
    "name the netdev in ia_params": "DAPL_SCM_NETDEV" "DAPL_LOOPBACK";
    "there is no UCM connection manager, take cm=rdmacm or cm=socket": "DAPL_UCM_RETRY" "DAPL_UCM_REP_TIME"
        "DAPL_UCM_RTU_TIME" "DAPL_UCM_WAIT_TIME" "DAPL_UCM_DREQ_RETRY" "DAPL_UCM_DREP_TIME" "DAPL_UCM_TIMER"
        "DAPL_UCM_QP_SIZE" "DAPL_UCM_CQ_SIZE" "DAPL_UCM_TX_BURST" "DAPL_UCM_ENTRY_BITS" "DAPL_UCM_ARRAY_BITS"
        "DAPL_NETWORK_NODES" "DAPL_NETWORK_PPN" "DAPL_NETWORK_PROCESS_NUM" "DAPL_NETWORK_TRESHOLD";
    "DAT_LOG sets the level; messages go to standard error": "DAPL_DBG_DEST" "DAPL_DBG_LEVEL" "DAPL_DBG_SYS_MEM"
        "DAT_DBG_DEST";
    "it turns warnings on": "DAPL_DBG_TYPE";
}

/// Variables that every adapter honours: the choice of messages.
const ALWAYS: &[&str] = &["DAPL_DBG_TYPE"];

/// Returns the number in variable `name`, which `env` reads. Like DAPL's numbers it is decimal, hexadecimal (0x...) or octal (0...).
/// Text that is not a number, or is greater than `max`, causes a warning and is ignored.
pub fn number(name: &str, max: u64, env: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let text = env(name)?;
    let trimmed = text.trim();
    let number = if let Some(hex) = trimmed.strip_prefix("0x") {
        u64::from_str_radix(hex, 16)
    } else if trimmed.len() > 1 && trimmed.starts_with('0') {
        u64::from_str_radix(&trimmed[1..], 8)
    } else {
        trimmed.parse()
    };
    match number {
        Ok(n) if n <= max => Some(n),
        _ => {
            tracing::warn!("{name}={text} is ignored: expected a number from 0 to {max}");
            None
        }
    }
}

/// Returns the variables that are set, as `env` reads them, but that an adapter ignores which honours only `honoured`.
pub fn ignored(honoured: &[&str], env: impl Fn(&str) -> Option<String>) -> Vec<Variable> {
    VARIABLES
        .iter()
        .copied()
        .filter(|v| !honoured.contains(&v.name) && !ALWAYS.contains(&v.name))
        .filter(|v| env(v.name).is_some())
        .collect()
}

/// Logs a warning for each variable that is set and ignored, once per variable while this shared object is loaded.
pub fn report(honoured: &[&str], env: impl Fn(&str) -> Option<String>) {
    static REPORTED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    for variable in ignored(honoured, env) {
        let first = lock(&REPORTED).insert(variable.name);
        if first {
            tracing::warn!(
                "{} is set and has no effect: {}",
                variable.name,
                variable.replacement
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env<'a>(pairs: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| {
            let found = pairs.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn numbers_are_written_as_in_c() {
        for (text, value) in [
            ("7", Some(7)),
            (" 8 ", Some(8)),
            ("0x10", Some(16)),
            ("010", Some(8)),
            ("0", Some(0)),
            ("17", None),
            ("-1", None),
            ("many", None),
            ("", None),
        ] {
            assert_eq!(number("N", 16, env(&[("N", text)])), value, "{text:?}");
        }
        assert_eq!(number("N", 16, env(&[])), None);
    }

    #[test]
    fn variables_that_are_set_and_not_honoured_are_listed() {
        let set = env(&[
            ("DAPL_IB_MTU", "2048"),
            ("DAPL_UCM_QP_SIZE", "8192"),
            ("DAPL_DBG_TYPE", "0xffff"),
            ("DAPL_TYPO", "1"),
        ]);
        let names = |honoured: &[&str]| -> Vec<_> {
            ignored(honoured, &set).iter().map(|v| v.name).collect()
        };
        assert_eq!(names(&["DAPL_IB_MTU"]), ["DAPL_UCM_QP_SIZE"]);
        assert_eq!(names(&[]), ["DAPL_IB_MTU", "DAPL_UCM_QP_SIZE"]);
        assert_eq!(ignored(&[], |_| None), []);
    }

    #[test]
    fn each_variable_is_listed_once() {
        let names: BTreeSet<_> = VARIABLES.iter().map(|v| v.name).collect();
        assert_eq!(names.len(), VARIABLES.len());
        assert!(
            names
                .iter()
                .all(|name| name.starts_with("DAPL_") || name.starts_with("DAT_"))
        );
    }
}
