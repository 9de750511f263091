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
    let rules = match tool {
        "nft" => of_nft(rules),
        _ => of_iptables(rules),
    };
    let accepting = |hook: &str| {
        rules
            .iter()
            .any(|rule| !rule.drops && names_port(rule.text) && rule.may_share(hook))
    };
    let mut drops = rules.iter().filter(|rule| rule.drops);
    if let Some(rule) = drops.clone().find(|rule| names_port(rule.text)) {
        // Many rulesets accept some peers, and drop the packets of all others; or drop what comes from some netdevs.
        let (state, except) = if accepting(rule.hook) {
            (State::Warning, ", except for what another one accepts")
        } else if is_for_some(rule.text) {
            (State::Warning, " for some packets")
        } else {
            (State::Fault, "")
        };
        let text = format!(
            "a rule of {tool} stops UDP port 4791{except}: {}",
            rule.text
        );
        return Finding::bad(CHECK, state, text, &rule.remedy);
    }
    let closed = drops.find(|rule| stops_all(rule.text) && !accepting(rule.hook));
    if let Some(rule) = closed {
        let text = format!(
            "{tool} drops or rejects what no rule accepts, and none accepts UDP port 4791: {}",
            rule.text
        );
        return Finding::bad(CHECK, State::Warning, text, &rule.remedy);
    }
    let clear = if accepting("") {
        format!("a rule of {tool} accepts UDP port 4791")
    } else {
        format!("no rule of {tool} names UDP port 4791 or stops all packets")
    };
    if place.is_container {
        let text = format!("{clear} in this container; it cannot look at the host's rules");
        return Finding::bad(CHECK, State::Unknown, text, ELSEWHERE);
    }
    Finding::ok(CHECK, clear)
}

/// A rule, or the policy of a chain, that drops, rejects or accepts.
#[derive(Debug)]
struct Rule<'a> {
    text: &'a str,
    drops: bool,
    /// Where packets pass its chain, in small letters; empty if other rules lead to it.
    hook: &'a str,
    /// The command that accepts UDP port 4791 before the rule is reached. The destination port is 4791 in both directions.
    remedy: String,
}

impl Rule<'_> {
    /// Returns whether the packets that pass `hook` may pass this rule too.
    fn may_share(&self, hook: &str) -> bool {
        let is_outgoing = |hook: &str| ["output", "postrouting"].contains(&hook);
        hook.is_empty() || self.hook.is_empty() || is_outgoing(hook) == is_outgoing(self.hook)
    }
}

/// Returns the rules of `nft list ruleset`, without those of forwarded packets.
fn of_nft(text: &str) -> Vec<Rule<'_>> {
    let (mut table, mut chain) = ("", "");
    let mut rules: Vec<Rule<'_>> = Vec::new();
    let mut hook = "";
    for line in text.lines().map(str::trim) {
        let head = line.strip_suffix('{').map(str::trim_end);
        if let Some(name) = head.and_then(|head| head.strip_prefix("table ")) {
            table = name;
        } else if let Some(name) = head.and_then(|head| head.strip_prefix("chain ")) {
            chain = name;
            hook = "";
        } else if line.starts_with("type ") {
            let mut words = line.split_whitespace().skip_while(|word| *word != "hook");
            hook = words.nth(1).unwrap_or("");
        }
        // A rule may have a comment in quotes.
        let words = line.split('"').step_by(2).flat_map(str::split_whitespace);
        let verdict = words
            .map(|word| word.trim_end_matches(';'))
            .find_map(|word| match word {
                "drop" | "reject" => Some(true),
                "accept" => Some(false),
                _ => None,
            });
        if let (Some(drops), false) = (verdict, hook == "forward") {
            rules.push(Rule {
                text: line,
                drops,
                hook,
                remedy: format!("nft insert rule {table} {chain} udp dport 4791 accept  # as root"),
            });
        }
    }
    rules
}

/// Returns the rules of `iptables -S`, without those of forwarded packets.
fn of_iptables(text: &str) -> Vec<Rule<'_>> {
    let rule = |line| {
        let words: Vec<&str> = str::split_whitespace(line).collect();
        let chain = *words.get(1)?;
        let verdict = match words[0] {
            "-P" => *words.get(2)?,
            _ => words.iter().skip_while(|word| **word != "-j").nth(1)?,
        };
        let drops = match verdict {
            "DROP" | "REJECT" => true,
            "ACCEPT" => false,
            _ => return None,
        };
        (chain != "FORWARD").then(|| Rule {
            text: line,
            drops,
            hook: match chain {
                "INPUT" => "input",
                "OUTPUT" => "output",
                _ => "",
            },
            remedy: format!("iptables -I {chain} -p udp --dport 4791 -j ACCEPT  # as root"),
        })
    };
    text.lines().filter_map(rule).collect()
}

/// Returns whether a rule is for UDP port 4791, by its number, a list or a range.
fn names_port(rule: &str) -> bool {
    let is_udp = rule.split_whitespace().any(|word| word == "udp");
    let ports = rule.split_once("dport").map(|(_, ports)| ports);
    let Some(ports) = ports.filter(|_| is_udp || rule.contains("th dport")) else {
        return false;
    };
    let ports = ports.trim_start_matches('s').trim_start();
    let (is_negated, ports) = match ports.strip_prefix("!=") {
        Some(others) => (true, others),
        None => (rule.contains("! --dport"), ports),
    };
    let numbers = ports.split(|c: char| c.is_whitespace() || "{},".contains(c));
    let numbers = numbers.filter(|word| !word.is_empty());
    let mut ranges = numbers.map_while(|word| {
        let (first, last) = word.split_once(['-', ':']).unwrap_or((word, word));
        Some(first.parse::<u16>().ok()?..=last.parse().ok()?)
    });
    ranges.any(|range| range.contains(&4791)) != is_negated
}

/// Returns whether a rule for UDP port 4791 is for some of the port's packets only: those of a netdev or of a peer, or those that other rules
/// pass to the rule's chain.
fn is_for_some(rule: &str) -> bool {
    let words = rule.split_whitespace().filter(|word| {
        let ports = |byte: u8| byte.is_ascii_digit() || b"{},:-!=".contains(&byte);
        !word.bytes().all(ports)
            && !["dport", "th", "--dport", "--dports", "multiport"].contains(word)
    });
    let rest: Vec<&str> = words.collect();
    !stops_all(&rest.join(" "))
}

/// Returns whether a rule or policy is for all packets, or for all of UDP: nothing before its verdict selects others.
fn stops_all(rule: &str) -> bool {
    if rule.contains("policy ") || rule.starts_with("-P ") {
        return true;
    }
    // What a rule for all packets of UDP has in the two languages, besides numbers.
    let known = [
        "drop",
        "reject",
        "counter",
        "packets",
        "bytes",
        "log",
        "with",
        "type",
        "meta",
        "l4proto",
        "ip",
        "ip6",
        "protocol",
        "nexthdr",
        "udp",
        "-p",
        "-m",
        "-A",
        "-j",
        "DROP",
        "REJECT",
        "--reject-with",
        "INPUT",
        "OUTPUT",
    ];
    let words = rule.split_whitespace();
    let words = words.filter(|word| !word.bytes().all(|byte| byte.is_ascii_digit()));
    // The kind of a rejection follows its verdict.
    let mut before = words.take_while(|word| !["with", "--reject-with"].contains(word));
    before.all(|word| known.contains(&word))
}

#[cfg(test)]
mod tests;
