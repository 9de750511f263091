//! DAPL's environment variables, in a process of their own: honoured by softrxe's user engine, or named once.

use std::process::Output;

use dat::Ia;

/// Runs `name` again in a process with these variables, where an IA called `ia` is on the user engine.
fn again(name: &str, address: &str, variables: &[(&str, &str)]) -> Output {
    let conf = dat_tests::line(
        "ia",
        &dat_tests::softrxe(),
        &format!("{address} 0 engine=user"),
    );
    let (mut command, _conf) = dat_tests::again(name, &conf);
    command
        .env("DAT_LOG", "warn")
        .envs(variables.iter().copied())
        .output()
        .expect("the test runs")
}

/// Whether an endpoint with 200 requests can be made.
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
