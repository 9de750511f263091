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

type Printed<'a> = Result<&'a str, &'a str>;

fn judged(place: Place, nft: Printed<'_>, iptables: Printed<'_>) -> Finding {
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
    let nft = |hook: &str, policy: &str, rule: &str| {
        format!(
            "table inet f {{\n\tchain i {{\n\t\ttype filter hook {hook} priority filter; policy {policy};\n\t\t{rule}\n\t}}\n}}\n"
        )
    };
    let gone = Err("it is not installed");
    let insert = "nft insert rule inet f i udp dport 4791 accept  # as root";
    for (hook, policy, rule, state) in [
        ("input", "drop", "", State::Warning),
        ("input", "drop", "udp dport 4791 accept", State::Ok),
        ("input", "drop", "tcp dport 4791 accept", State::Warning),
        ("forward", "drop", "drop", State::Ok),
        ("input", "accept", "udp dport 4791 drop", State::Fault),
        (
            "output",
            "accept",
            "udp dport 4791 counter packets 0 bytes 0 reject",
            State::Fault,
        ),
        (
            "input",
            "accept",
            "udp dport { 53, 4000-5000 } drop",
            State::Fault,
        ),
        ("input", "accept", "udp dport != 53 drop", State::Fault),
        ("input", "accept", "udp dport != 4791 drop", State::Ok),
        (
            "input",
            "accept",
            "ip saddr 192.0.2.0/24 udp dport 4791 accept\n\t\tudp dport 4791 drop",
            State::Warning,
        ),
        (
            "input",
            "accept",
            "udp dport { 53, 4792-5000 } drop comment \"4791\"",
            State::Ok,
        ),
        (
            "input",
            "accept",
            "iifname \"wan0\" udp dport 4791 drop",
            State::Warning,
        ),
        (
            "input",
            "accept",
            "ip saddr != 192.0.2.0/24 udp dport 4791 drop",
            State::Warning,
        ),
        ("input", "accept", "tcp dport 4791 drop", State::Ok),
        ("input", "accept", "ct state invalid drop", State::Ok),
        (
            "input",
            "accept",
            "counter packets 0 bytes 0 reject with icmpx admin-prohibited",
            State::Warning,
        ),
        ("input", "accept", "meta l4proto udp drop", State::Warning),
    ] {
        let finding = judged(HOST, Ok(&nft(hook, policy, rule)), gone);
        assert_eq!(finding.state, state, "{rule}: {finding:?}");
        let remedy = (state != State::Ok).then_some(insert);
        assert_eq!(finding.remedy.as_deref(), remedy, "{rule}: {finding:?}");
        assert!(
            state != State::Fault || finding.text.contains(rule),
            "{finding:?}"
        );
    }
    assert_eq!(judged(HOST, Ok(""), gone).state, State::Ok);
    // What goes out is accepted, what comes in is not.
    let closed = nft("input", "drop", "");
    let both = nft("output", "accept", "udp dport 4791 accept") + &closed;
    assert_eq!(judged(HOST, Ok(&both), gone).state, State::Warning);
    let insert = "iptables -I INPUT -p udp --dport 4791 -j ACCEPT  # as root";
    for (rules, state) in [
        ("-P INPUT DROP\n", State::Warning),
        (
            "-P INPUT DROP\n-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\n",
            State::Ok,
        ),
        (
            "-P INPUT ACCEPT\n-A INPUT -j REJECT --reject-with icmp-port-unreachable\n",
            State::Warning,
        ),
        ("-P INPUT ACCEPT\n-P FORWARD DROP\n", State::Ok),
        (
            "-P INPUT DROP\n-A OUTPUT -p udp -m udp --dport 4791 -j ACCEPT\n",
            State::Warning,
        ),
        (
            "-P INPUT ACCEPT\n-A INPUT -i wan0 -p udp -m udp --dport 4791 -j DROP\n",
            State::Warning,
        ),
        (
            "-P INPUT ACCEPT\n-A INPUT -p udp -m udp --dport 4791 -j DROP\n",
            State::Fault,
        ),
        (
            "-P INPUT ACCEPT\n-A INPUT -p udp -m multiport --dports 53,4000:5000 -j DROP\n",
            State::Fault,
        ),
        (
            "-P INPUT ACCEPT\n-A INPUT -p tcp -m tcp --dport 22 -j DROP\n",
            State::Ok,
        ),
    ] {
        let finding = judged(HOST, gone, Ok(rules));
        assert_eq!(finding.state, state, "{rules}: {finding:?}");
        let remedy = (state != State::Ok).then_some(insert);
        assert_eq!(finding.remedy.as_deref(), remedy, "{rules}: {finding:?}");
    }
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
    let closed = nft("input", "accept", "udp dport 4791 drop");
    assert_eq!(judged(inside, Ok(&closed), gone).state, State::Fault);
}
