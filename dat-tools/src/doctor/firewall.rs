//! Firewall rules that drop what RoCE needs. They are visible with rights only, and in a container only its own.

use std::path::Path;
use std::process::{Command, Stdio};

use super::finding::{Finding, State};

const CHECK: &str = "firewall";
/// What prints the rules. iptables is asked only where nft gives none: it may load its kernel modules.
const TOOLS: [(&str, &str); 2] = [("nft", "list ruleset"), ("iptables", "-S")];
/// Bit of CAP_NET_ADMIN, without which the kernel shows no rules.
const NET_ADMIN: u64 = 1 << 12;
/// Why a tool prints nothing where it is missing.
const MISSING: &str = "it is not installed";
/// Shows the rules of the host that a container runs on, or those of the machine where this process lacks the rights. The note is for machines with
/// neither tool.
const ELSEWHERE: &str = "nft list ruleset || iptables -S  # as root on the host, where this is a container; a rule must accept UDP port 4791 \
     where others drop. Needs no tool: `dat serve` here, and `dat ping` from another host";

/// What this process is.
#[derive(Clone, Copy, Debug)]
struct Place {
    is_root: bool,
    may_look: bool,
    is_container: bool,
    has_sudo: bool,
}

impl Place {
    fn here() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim_start_matches(':').trim().to_owned())
        };
        let rights = field("CapEff").and_then(|hex| u64::from_str_radix(&hex, 16).ok());
        let user = field("Uid");
        let user = user
            .as_deref()
            .and_then(|ids| ids.split_whitespace().nth(1));
        let marks = [
            "/.dockerenv",
            "/run/.containerenv",
            "/run/systemd/container",
        ];
        Self {
            is_root: user == Some("0"),
            may_look: rights.is_none_or(|rights| rights & NET_ADMIN != 0),
            is_container: marks.iter().any(|mark| Path::new(mark).exists())
                || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
            has_sudo: ["/usr/bin/sudo", "/usr/local/bin/sudo", "/bin/sudo"]
                .iter()
                .any(|path| Path::new(path).exists()),
        }
    }

    /// Returns a command line as this user gives it to be run by root. Many a root shell has no sudo.
    fn as_root(self, line: &str) -> String {
        match (self.is_root, self.has_sudo) {
            (true, _) => line.to_owned(),
            (false, true) => format!("sudo sh -c '{line}'"),
            (false, false) => format!("su -c '{line}'"),
        }
    }
}

/// Looks for rules that drop what RoCE needs.
pub(super) fn firewall() -> Finding {
    judge(Place::here(), print)
}

/// Runs a program, and returns what it prints or why it does not.
fn print(program: &str, arguments: &str) -> Result<String, String> {
    // Debian's users have not the folder in their PATH.
    let full = Path::new("/usr/sbin").join(program);
    let path = if full.exists() {
        &full
    } else {
        Path::new(program)
    };
    let mut command = Command::new(path);
    command.args(arguments.split_whitespace());
    match command.stdin(Stdio::null()).output() {
        Ok(done) if done.status.success() => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        Ok(done) => {
            let text = String::from_utf8_lossy(&done.stderr);
            let why = text.lines().map(str::trim).find(|line| !line.is_empty());
            Err(why.map_or_else(|| done.status.to_string(), str::to_owned))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(MISSING.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Judges the rules of the first tool that `print` gets them from.
fn judge(place: Place, print: impl Fn(&str, &str) -> Result<String, String>) -> Finding {
    let mut why_not = Vec::new();
    let mut has_tool = false;
    for (tool, arguments) in TOOLS {
        match print(tool, arguments) {
            Ok(rules) if rules.trim().is_empty() && !place.may_look => {
                has_tool = true;
                why_not.push(format!("{tool}: it shows nothing without CAP_NET_ADMIN"));
            }
            Ok(rules) => return of_rules(tool, &rules, place),
            Err(why) => {
                has_tool |= why != MISSING;
                why_not.push(format!("{tool}: {why}"));
            }
        }
    }
    let text = format!("could not look: {}", why_not.join("; "));
    let remedy = if place.is_container || (place.is_root && !place.may_look) {
        ELSEWHERE.to_owned()
    } else if has_tool {
        place.as_root("dat doctor")
    } else {
        let install = place.as_root("apt-get install -y nftables && dat doctor");
        format!("{install}  # elsewhere: dnf install nftables")
    };
    Finding::bad(CHECK, State::Unknown, text, remedy)
}

fn of_rules(tool: &str, rules: &str, place: Place) -> Finding {
    let drops = if tool == "nft" {
        rules.contains("hook input") && (rules.contains("policy drop") || rules.contains("reject"))
    } else {
        let mut of_input = rules.lines().filter(|rule| rule.contains(" INPUT "));
        of_input.any(|rule| ["DROP", "REJECT"].iter().any(|end| rule.contains(end)))
    };
    if drops && !rules.contains("4791") {
        let text =
            format!("{tool} has rules that drop or reject packets, and none names UDP port 4791");
        let allow = match tool {
            "nft" => "nft add rule inet filter input udp dport 4791 accept",
            _ => "iptables -I INPUT -p udp --dport 4791 -j ACCEPT",
        };
        return Finding::bad(CHECK, State::Warning, text, allow);
    }
    let clear = format!("no rule of {tool} stands in the way of UDP port 4791");
    if place.is_container {
        let text = format!("{clear} in this container; it cannot look at the host's rules");
        return Finding::bad(CHECK, State::Unknown, text, ELSEWHERE);
    }
    Finding::ok(CHECK, clear)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Place = Place {
        is_root: true,
        may_look: true,
        is_container: false,
        has_sudo: false,
    };
    const CONTAINER: Place = Place {
        may_look: false,
        is_container: true,
        ..HOST
    };

    type Printed = Result<&'static str, &'static str>;

    fn judged(place: Place, nft: Printed, iptables: Printed) -> Finding {
        judge(place, |tool, _| {
            let printed = if tool == "nft" { nft } else { iptables };
            printed.map(str::to_owned).map_err(str::to_owned)
        })
    }

    #[test]
    fn what_could_not_be_looked_at_is_unknown_and_says_why() {
        let gone = Err(MISSING);
        let denied = Err("Operation not permitted (you must be root)");
        let user = Place {
            is_root: false,
            may_look: false,
            ..HOST
        };
        let sudoer = Place {
            has_sudo: true,
            ..user
        };
        let bare = Place {
            may_look: false,
            ..HOST
        };
        let install = "apt-get install -y nftables && dat doctor";
        for (place, nft, iptables, why, remedy) in [
            (
                HOST,
                gone,
                gone,
                "nft: it is not installed; iptables: it is",
                install,
            ),
            (
                user,
                denied,
                gone,
                "nft: Operation not permitted",
                "su -c 'dat doctor'",
            ),
            (
                sudoer,
                denied,
                gone,
                "nft: Operation",
                "sudo sh -c 'dat doctor'",
            ),
            // Rights show nothing where there is no tool.
            (
                user,
                gone,
                gone,
                "iptables: it is not",
                &format!("su -c '{install}'"),
            ),
            (bare, denied, gone, "nft: Operation", ELSEWHERE),
            (CONTAINER, gone, gone, "nft: it is not installed", ELSEWHERE),
            (
                CONTAINER,
                Ok("\n"),
                denied,
                "nft: it shows nothing without CAP_NET_ADMIN",
                ELSEWHERE,
            ),
        ] {
            let finding = judged(place, nft, iptables);
            assert_eq!(finding.state, State::Unknown, "{finding:?}");
            assert!(
                finding.text.starts_with("could not look: ") && finding.text.contains(why),
                "{finding:?}"
            );
            assert!(
                finding.remedy.is_some_and(|r| r.starts_with(remedy)),
                "{why}"
            );
        }
    }

    #[test]
    fn rules_that_drop_are_named_and_a_container_has_not_the_hosts() {
        let closed = "table inet f { chain i { type filter hook input priority 0; policy drop; } }";
        let open = "table inet f { chain i { hook input; policy drop; udp dport 4791 accept } }";
        let gone = Err("it is not installed");
        assert_eq!(judged(HOST, Ok(closed), gone).state, State::Warning);
        assert_eq!(judged(HOST, Ok(open), gone).state, State::Ok);
        assert_eq!(judged(HOST, Ok(""), gone).state, State::Ok);
        assert_eq!(
            judged(HOST, gone, Ok("-P INPUT DROP\n")).state,
            State::Warning
        );
        let rules = "-P INPUT ACCEPT\n-A INPUT -j REJECT\n";
        assert_eq!(judged(HOST, gone, Ok(rules)).state, State::Warning);
        let rules = "-P INPUT ACCEPT\n-P FORWARD DROP\n";
        assert_eq!(judged(HOST, gone, Ok(rules)).state, State::Ok);
        let inside = Place {
            may_look: true,
            ..CONTAINER
        };
        let finding = judged(inside, Ok(""), gone);
        assert_eq!(finding.state, State::Unknown);
        assert!(
            finding.text.contains("cannot look at the host's rules"),
            "{finding:?}"
        );
    }
}
