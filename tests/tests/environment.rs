//! DAPL's environment variables, in processes of their own: an engine honours each, or one warning names it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;

use dat::Ia;
use dat_core::environment::VARIABLES;

/// Runs `name` in a process with these variables, where an IA called `ia` is on the user engine.
fn again(name: &str, address: &str, variables: &[(&str, &str)]) -> Output {
    let params = format!("{address} 0 engine=user");
    with(name, &dat_tests::softrxe(), &params, variables)
}

/// Like [`again`], with an IA of this provider.
fn with(name: &str, library: &Path, params: &str, variables: &[(&str, &str)]) -> Output {
    let conf = dat_tests::line("ia", library, params);
    let (mut command, _conf) = dat_tests::again(name, &conf);
    command
        .env("DAT_LOG", "warn")
        .envs(variables.iter().copied())
        .output()
        .expect("the test runs")
}

/// Returns true if an endpoint with 200 requests can be created.
fn makes_200(ia: &Ia) -> bool {
    let pz = ia.create_pz().expect("a PZ");
    let evd = ia.create_evd(300, dat::Streams::DTO).expect("an EVD");
    let ep = ia.endpoint(&pz).request_evd(&evd).recv_evd(&evd);
    ep.max_requests(200).create().is_ok()
}

#[test]
fn variables_without_effect_are_named_once_and_the_others_have_theirs() {
    if dat_tests::is_inner() {
        for _ in 0..3 {
            let ia = Ia::open("ia").expect("the IA opens");
            let mtu = ia.attributes().expect("attributes").named;
            let mtu = mtu.iter().find(|(name, _)| name == "DAT_IB_TRANSPORT_MTU");
            println!("mtu {} 200 {}", mtu.expect("told").1, makes_200(&ia));
        }
        return;
    }
    let name = "variables_without_effect_are_named_once_and_the_others_have_theirs";
    let plain = again(name, "127.0.6.1", &[]);
    let out = String::from_utf8_lossy(&plain.stdout);
    let err = String::from_utf8_lossy(&plain.stderr);
    assert!(plain.status.success(), "{out}{err}");
    assert!(
        out.contains("200 true") && !out.contains("mtu 512"),
        "{out}"
    );
    assert!(!err.contains("DAPL_"), "{err}");
    let set = again(
        name,
        "127.0.6.2",
        &[
            ("DAPL_IB_MTU", "512"),
            ("DAPL_WR_MAX", "100"),
            ("DAPL_UCM_QP_SIZE", "8192"),
            ("DAPL_MAX_INLINE", "128"),
        ],
    );
    let out = String::from_utf8_lossy(&set.stdout);
    let err = String::from_utf8_lossy(&set.stderr);
    assert!(set.status.success(), "{out}{err}");
    assert_eq!(out.matches("mtu 512 200 false").count(), 3, "{out}");
    for (variable, times) in [
        ("DAPL_UCM_QP_SIZE is set and has no effect", 1),
        ("DAPL_MAX_INLINE is set and has no effect", 1),
        ("DAPL_IB_MTU", 0),
        ("DAPL_WR_MAX", 0),
    ] {
        assert_eq!(err.matches(variable).count(), times, "{variable}: {err}");
    }
}

/// Variables that softrxe's user engine honours.
const BY_USER: [&str; 6] = [
    "DAPL_IB_MTU",
    "DAPL_ACK_RETRY",
    "DAPL_RNR_RETRY",
    "DAPL_RNR_TIMER",
    "DAPL_ACK_TIMER",
    "DAPL_WR_MAX",
];
/// Further variables that verbs devices honour: in the ibverbs provider and in softrxe's kernel engine.
const BY_VERBS: [&str; 6] = [
    "DAPL_MAX_INLINE",
    "DAPL_CM_TOS",
    "DAPL_CM_ARP_TIMEOUT_MS",
    "DAPL_CM_ARP_RETRY_COUNT",
    "DAPL_CM_ROUTE_TIMEOUT_MS",
    "DAPL_CM_ROUTE_RETRY_COUNT",
];

#[test]
fn each_variable_is_honoured_or_named_once_by_either_kind_of_engine() {
    if dat_tests::is_inner() {
        for _ in 0..2 {
            // Without the device the open fails, but after the settings are read and reported.
            drop(Ia::open("ia"));
        }
        return;
    }
    let name = "each_variable_is_honoured_or_named_once_by_either_kind_of_engine";
    let value = |name| match name {
        "DAPL_IB_MTU" => "1024",
        _ => "7",
    };
    let all: Vec<_> = VARIABLES.iter().map(|v| (v.name, value(v.name))).collect();
    let ibverbs = dat_tests::built().join("libdat_provider_ibverbs.so");
    for (library, params, also) in [
        (dat_tests::softrxe(), "127.0.6.3 0 engine=user", &[][..]),
        (ibverbs, "v0 0", &BY_VERBS),
    ] {
        let set = with(name, &library, params, &all);
        let err = String::from_utf8_lossy(&set.stderr);
        assert!(set.status.success(), "{err}");
        assert!(!err.contains("is ignored: expected"), "{err}");
        for variable in VARIABLES {
            let name = variable.name;
            let honoured = BY_USER.contains(&name) || also.contains(&name);
            let told = err
                .matches(&format!("{name} is set and has no effect: "))
                .count();
            // DAPL_DBG_TYPE itself enables the warnings.
            let wanted = usize::from(!honoured && name != "DAPL_DBG_TYPE");
            assert_eq!(told, wanted, "{params}: {name}: {err}");
        }
    }
}

/// Returns the strings in a library that look like names of environment variables.
fn names_in(library: &str, prefix: &str) -> BTreeSet<String> {
    let bytes = std::fs::read(library).unwrap_or_else(|e| panic!("{library}: {e}"));
    let of_a_name = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    let mut names = BTreeSet::new();
    for at in 0..bytes.len() {
        let Some(rest) = bytes[at..].strip_prefix(prefix.as_bytes()) else {
            continue;
        };
        // A name in the middle of a message does not count.
        if at > 0 && (bytes[at - 1].is_ascii_graphic() || bytes[at - 1] == b' ') {
            continue;
        }
        let length = rest.iter().position(|byte| !of_a_name(byte));
        // The name must reach the end of the C string.
        if let Some(length) = length.filter(|n| *n > 0 && rest[*n] == 0) {
            let name = &bytes[at..at + prefix.len() + length];
            names.insert(String::from_utf8_lossy(name).into_owned());
        }
    }
    names
}

#[test]
fn every_variable_of_debians_dapl_is_in_the_list_and_in_the_documentation() {
    let folder = "/usr/lib/x86_64-linux-gnu";
    let mut theirs = names_in(&format!("{folder}/libdat2.so.2"), "DAT_DBG_");
    assert!(theirs.remove("DAT_DBG_TYPE"), "{theirs:?}");
    for provider in ["ofa", "oscm", "oucm"] {
        theirs.extend(names_in(
            &format!("{folder}/libdapl{provider}.so.2"),
            "DAPL_",
        ));
    }
    assert!(theirs.len() > 35, "{theirs:?}");
    let ours: BTreeSet<String> = VARIABLES.iter().map(|v| v.name.to_owned()).collect();
    assert_eq!(theirs, ours);
    let page = std::fs::read_to_string(format!("{}/docs/ia_params.md", dat_tests::TOP));
    let page = page.expect("the page");
    for name in ours {
        let family = ["DAPL_UCM_", "DAPL_NETWORK_"]
            .iter()
            .find(|f| name.starts_with(**f));
        let written = family.map_or(format!("`{name}`"), |family| format!("`{family}*`"));
        assert!(page.contains(&written), "docs/ia_params.md lacks {written}");
    }
}
