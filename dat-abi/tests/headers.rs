//! Compares the layouts in Rust, in our C headers, and in Debian's headers, with a C compiler. No 1.2 headers can be installed:
//! their sizes and offsets were measured once and are constants here.
//!
//! Needs gcc, g++ and Debian's libdapl-dev (`/usr/include/dat2`). If the test was built for another processor (scripts/ports.sh), `CC` and
//! `CXX` are compilers for that one, and `DAT_EMULATOR` runs what they make.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use dat_abi::types::{self as common, CLayout};
use dat_abi::v1_2::{table as table_1_2, types as v1};
use dat_abi::v2_0::{table, types as v2};

/// Origin of headers.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Family {
    Debian,
    Ours,
}

fn ours() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/include")
}

/// Returns the compiler of a language.
fn compiler(language: &str) -> Command {
    let (variable, usual) = match language {
        "c" => ("CC", "gcc"),
        _ => ("CXX", "g++"),
    };
    Command::new(std::env::var(variable).unwrap_or_else(|_| usual.into()))
}

/// Compiles `source` with the headers of `family` to `out`. The error is the compiler's output.
fn compile(source: &str, language: &str, family: Family, out: &Path) -> Result<(), String> {
    let file = out.with_extension(language);
    std::fs::write(&file, source).unwrap();
    let mut cc = compiler(language);
    cc.args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]);
    match family {
        Family::Ours => cc.arg("-I").arg(ours()),
        Family::Debian => {
            assert!(
                Path::new("/usr/include/dat2/udat.h").exists(),
                "Debian's headers are missing: apt-get install libdapl-dev"
            );
            // Current compilers warn about them. A compiler for another processor does not look into this folder.
            cc.args(["-w", "-idirafter", "/usr/include"])
        }
    };
    let made = cc
        .arg("-o")
        .arg(out)
        .arg(&file)
        .output()
        .expect("a C compiler");
    if made.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&made.stderr).into_owned())
    }
}

/// Compiles and runs a program, and returns its output.
fn run(source: &str, language: &str, family: Family) -> String {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("probe");
    if let Err(words) = compile(source, language, family, &program) {
        panic!("{family:?} {language}: {words}");
    }
    let emulator = std::env::var("DAT_EMULATOR").unwrap_or_default();
    let mut words = emulator
        .split_whitespace()
        .map(PathBuf::from)
        .chain([program]);
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

const BEGIN_2_0: &str = "#include <netinet/in.h>\n#include <stdio.h>\n#include <stddef.h>\n#include <dat2/udat.h>\n\
     #include <dat2/dat_registry.h>\n#include <dat2/dat_ib_extensions.h>\nint main(void) {\n";

macro_rules! layouts {
    ($($c:literal $rust:ty),* $(,)?) => {
        vec![$(($c, <$rust as CLayout>::SIZE, <$rust as CLayout>::FIELDS)),*]
    };
}

type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

/// Returns the layouts of the types that 1.2 and 2.0 share, then `own`.
fn layouts(own: Vec<Layout>) -> Vec<Layout> {
    let common = layouts![
        "DAT_NAMED_ATTR" common::DatNamedAttr,
        "DAT_OS_WAIT_PROXY_AGENT" common::DatOsWaitProxyAgent,
        "DAT_EVD_PARAM" common::DatEvdParam,
        "DAT_SRQ_ATTR" common::DatSrqAttr,
        "DAT_SRQ_PARAM" common::DatSrqParam,
        "DAT_PZ_PARAM" common::DatPzParam,
        "DAT_PSP_PARAM" common::DatPspParam,
        "DAT_RSP_PARAM" common::DatRspParam,
        "DAT_CR_PARAM" common::DatCrParam,
        "DAT_RMR_BIND_COMPLETION_EVENT_DATA" common::DatRmrBindCompletionEventData,
        "DAT_CONNECTION_EVENT_DATA" common::DatConnectionEventData,
        "DAT_ASYNCH_ERROR_EVENT_DATA" common::DatAsynchErrorEventData,
        "DAT_SOFTWARE_EVENT_DATA" common::DatSoftwareEventData,
        "DAT_PROVIDER_INFO" common::DatProviderInfo,
    ];
    [common, own].concat()
}

fn layouts_2_0() -> Vec<Layout> {
    layouts(layouts![
        "DAT_LMR_TRIPLET" v2::DatLmrTriplet,
        "DAT_RMR_TRIPLET" v2::DatRmrTriplet,
        "DAT_DTO_COMPLETION_EVENT_DATA" v2::DatDtoCompletionEventData,
        "DAT_CR_ARRIVAL_EVENT_DATA" v2::DatCrArrivalEventData,
        "DAT_EVENT" v2::DatEvent,
        "DAT_IA_ATTR" v2::DatIaAttr,
        "DAT_PROVIDER_ATTR" v2::DatProviderAttr,
        "DAT_EP_ATTR" v2::DatEpAttr,
        "DAT_COMM" v2::DatComm,
        "DAT_EP_PARAM" v2::DatEpParam,
        "DAT_LMR_PARAM" v2::DatLmrParam,
        "DAT_RMR_PARAM" v2::DatRmrParam,
        "DAT_CNO_PARAM" v2::DatCnoParam,
        "DAT_CSP_PARAM" v2::DatCspParam,
        "DAT_IB_ADDR_HANDLE" v2::DatIbAddrHandle,
        "DAT_IB_EXTENSION_EVENT_DATA" v2::DatIbExtensionEventData,
        "DAT_PROVIDER" table::DatProvider,
    ])
}

/// Returns a C program that prints sizes and offsets in the form of [`in_rust`].
fn print_layouts(begin: &str, layouts: &[Layout]) -> String {
    let mut c = begin.to_owned();
    for (name, _, fields) in layouts {
        writeln!(c, "printf(\"{name} %zu\\n\", sizeof({name}));").unwrap();
        for (field, _) in *fields {
            let field = field.trim_start_matches("r#");
            writeln!(
                c,
                "printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));"
            )
            .unwrap();
        }
    }
    c + "return 0; }\n"
}

fn in_rust(layouts: &[Layout]) -> String {
    let mut text = String::new();
    for (name, size, fields) in layouts {
        writeln!(text, "{name} {size}").unwrap();
        for (field, offset) in *fields {
            writeln!(text, "{name}.{} {offset}", field.trim_start_matches("r#")).unwrap();
        }
    }
    text
}

#[test]
fn rust_debian_and_our_headers_have_the_same_layouts() {
    let layouts = layouts_2_0();
    let c = print_layouts(BEGIN_2_0, &layouts);
    let rust = in_rust(&layouts);
    assert_eq!(run(&c, "c", Family::Debian), rust);
    assert_eq!(run(&c, "c", Family::Ours), rust);
}

/// Returns the names of all enum constants, and of all macros that are a number or a string, in a family's headers.
fn names(header: &str, family: Family) -> BTreeMap<String, bool> {
    let source = format!(
        "#include <netinet/in.h>\n#include <{header}>\n#include <dat2/dat_registry.h>\n#include <dat2/dat_ib_extensions.h>\n"
    );
    let preprocess = |flag: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("all.c");
        std::fs::write(&file, &source).unwrap();
        let mut cc = compiler("c");
        if family == Family::Ours {
            cc.arg("-I").arg(ours());
        }
        cc.args(["-idirafter", "/usr/include"]);
        let out = cc.arg("-E").args(flag).arg(&file).output().unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8(out.stdout).unwrap()
    };
    let identifier = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let ours = |name: &str| {
        (name.starts_with("DAT_") || name.starts_with("DCNT_")) && name.chars().all(identifier)
    };
    let mut found = BTreeMap::new();
    let text = preprocess(&["-P"]);
    for block in text.split("enum ").skip(1) {
        let (Some(open), Some(close)) = (block.find('{'), block.find('}')) else {
            continue;
        };
        // The definition of an enum, not a use of its tag.
        if open > close || !block[..open].trim().chars().all(identifier) {
            continue;
        }
        for item in block[open + 1..close].split(',') {
            let name = item.split('=').next().unwrap_or_default().trim();
            if ours(name) {
                found.insert(name.to_owned(), false);
            }
        }
    }
    for line in preprocess(&["-dM"]).lines() {
        let mut words = line.splitn(3, ' ').skip(1);
        let (Some(name), Some(value)) = (words.next(), words.next()) else {
            continue;
        };
        let value = value.trim();
        let number = value.starts_with(|c: char| c.is_ascii_digit())
            || value.starts_with("UINT64_C")
            || value.starts_with("((DAT_COUNT)")
            || value.starts_with("(((DAT_COUNT)")
            || value.starts_with("((DAT_TIMEOUT)");
        if ours(name) && (number || value.starts_with('"')) {
            found.insert(name.to_owned(), value.starts_with('"'));
        }
    }
    found
}

/// Aliases whose expansion is another name.
const ALIASES: &[&str] = &[
    "DAT_CLOSE_DEFAULT",
    "DAT_CONNECT_MULTIPATH_FLAG",
    "DAT_CONNECT_MULTIPATH_REQUESTED_FLAG",
    "DAT_DTO_FAILURE",
    "DAT_DTO_LENGTH_ERROR",
    "DAT_EP_STATE_ERROR",
    "DAT_HA_LB_INTERCOMM",
    "DAT_HA_LB_INTRACOMM",
    "DAT_HW_DEFAULT",
    "DAT_IA_ALL",
    "DAT_IA_FIELD_IA_MAX_MTU_SIZE",
    "DAT_IA_FIELD_IA_EXTENSIONS_SUPPORTED",
    "DAT_MEM_PRIV_READ_FLAG",
    "DAT_MEM_PRIV_WRITE_FLAG",
    "DAT_NAME_NOT_FOUND",
    "DAT_PRINT_COUNTERS_OP",
    "DAT_QUERY_COUNTERS_OP",
    "DAT_RMR_BIND_FAILURE",
    "DAT_RMR_BIND_SUCCESS",
    "DAT_THREADSAFE",
    "DAT_AF_INET",
    "DAT_AF_INET6",
    "(unsigned long)DAT_EVD_ASYNC_EXISTS",
    "(unsigned long)DAT_EVD_OUT_OF_SCOPE",
    "DAT_GET_TYPE(0x8006002f)",
    "DAT_GET_SUBTYPE(0x8006002f)",
    "DAT_IS_WARNING(0xffffffff)",
    "sizeof(DAT_BOOLEAN)",
    "sizeof(DAT_VLEN)",
    "sizeof(DAT_SEG_LENGTH)",
    "sizeof(DAT_TIMEOUT)",
    "sizeof(DAT_CONTEXT)",
    "sizeof(DAT_REGION_DESCRIPTION)",
    "sizeof(DAT_SHARED_MEMORY)",
    "sizeof(DAT_EVENT_DATA)",
    "sizeof(DAT_IB_COLLECTIVE_GROUP)",
    "sizeof(DAT_LMR_COOKIE)",
    "sizeof(DAT_IB_COLLECTIVE_EVENT_DATA)",
    "sizeof(DAT_EP_PARAM_MASK)",
    "sizeof(DAT_IA_ATTR_MASK)",
    "offsetof(DAT_IA_ATTR, max_rdma_read_per_ep)",
    "offsetof(DAT_EP_ATTR, max_mtu_size)",
    "offsetof(DAT_SHARED_MEMORY, shared_memory_id)",
    "offsetof(DAT_IB_EXTENSION_EVENT_DATA, coll)",
];

#[test]
fn every_constant_of_debians_headers_is_in_ours_with_its_value() {
    let names = names("dat2/udat.h", Family::Debian);
    assert!(names.len() > 600, "only {} constants found", names.len());
    let mut c = BEGIN_2_0.to_owned();
    for (name, text) in &names {
        if *text {
            writeln!(c, "printf(\"{name} %s\\n\", {name});").unwrap();
        } else {
            writeln!(
                c,
                "printf(\"{name} %llx\\n\", (unsigned long long)({name}));"
            )
            .unwrap();
        }
    }
    for name in ALIASES {
        writeln!(
            c,
            "printf(\"{name} %llx\\n\", (unsigned long long)({name}));"
        )
        .unwrap();
    }
    c += "return 0; }\n";
    assert_eq!(run(&c, "c", Family::Ours), run(&c, "c", Family::Debian));
}

#[test]
fn our_headers_have_no_constant_that_debians_lack() {
    let debian = names("dat2/udat.h", Family::Debian);
    let ours = names("dat2/udat.h", Family::Ours);
    let more: Vec<_> = ours
        .keys()
        .filter(|n| !debian.contains_key(*n) && !ALIASES.contains(&n.as_str()))
        .collect();
    assert!(more.is_empty(), "{more:?}");
}

#[test]
fn every_function_has_debians_type() {
    // C++ names types exactly; the functions are declared, never called, so nothing is linked.
    let mut c = BEGIN_2_0
        .replace("int main", "#include <typeinfo>\nint main")
        .replace("(void)", "()");
    for (field, _) in &table::DatProvider::FIELDS[2..] {
        let slot = field.trim_end_matches("_func");
        let typedef = format!("DAT_{}_FUNC", slot.to_uppercase());
        writeln!(c, "printf(\"{slot} %s\\n\", typeid({typedef}).name());").unwrap();
        if !["ia_open", "ia_ha_related", "handle_extendedop"].contains(&slot) {
            writeln!(
                c,
                "printf(\"dat_{slot} %s\\n\", typeid(dat_{slot}).name());"
            )
            .unwrap();
        }
    }
    for name in [
        "dat_ia_openv",
        "dat_strerror",
        "dat_registry_list_providers",
        "dat_registry_add_provider",
        "dat_registry_remove_provider",
        "dat_registry_providers_related",
        "dat_extension_op",
    ] {
        writeln!(c, "printf(\"{name} %s\\n\", typeid({name}).name());").unwrap();
    }
    c += "return 0; }\n";
    assert_eq!(run(&c, "cpp", Family::Ours), run(&c, "cpp", Family::Debian));
}

#[test]
fn each_header_stands_alone_in_c_and_cpp() {
    let dir = tempfile::tempdir().unwrap();
    let mut headers = 0;
    for family in ["dat", "dat2"] {
        for entry in std::fs::read_dir(ours().join(family)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            // Included twice, then the rest of the family.
            let source = format!(
                "#include <{family}/{name}>\n#include <{family}/{name}>\n#include <{family}/udat.h>\n\
                 int main(void) {{ DAT_EVENT event; return sizeof event == 0; }}\n"
            );
            for language in ["c", "cpp"] {
                if let Err(words) =
                    compile(&source, language, Family::Ours, &dir.path().join("alone"))
                {
                    panic!("{family}/{name} as {language}: {words}");
                }
            }
            headers += 1;
        }
    }
    assert_eq!(headers, 29);
}

/// Returns every DAT name that a header defines when it is included alone: words of its text, and macros; a macro with parameters
/// also as `NAME(count)`.
fn shown(header: &str, family: Family) -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("alone.c");
    // Debian's header needs udat.h before it; ours does not.
    let before = match (header, family) {
        ("dat_registry.h", Family::Debian) => "#include <dat2/udat.h>\n",
        _ => "",
    };
    std::fs::write(&file, format!("{before}#include <dat2/{header}>\n")).unwrap();
    let preprocess = |flag: &str| {
        let mut cc = compiler("c");
        if family == Family::Ours {
            cc.arg("-I").arg(ours());
        }
        cc.args(["-idirafter", "/usr/include"]);
        let out = cc.args(["-E", flag]).arg(&file).output().unwrap();
        let words = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{family:?} {header}: {words}");
        String::from_utf8(out.stdout).unwrap()
    };
    let macros = preprocess("-dM");
    let with_parameters = macros.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("#define ")?.split_once('(')?;
        // A blank before the bracket begins the value of a macro without parameters.
        (!name.contains(' ')).then_some(())?;
        let (parameters, _) = rest.split_once(')')?;
        Some(format!("{name}({})", parameters.split(',').count()))
    });
    let text = preprocess("-P") + &macros;
    text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric())
        .map(str::to_owned)
        .chain(with_parameters)
        .filter(|name| {
            ["DAT_", "dat_", "dats_", "DCNT_", "DAPL_"]
                .iter()
                .any(|begin| name.starts_with(begin))
        })
        .collect()
}

/// A program may include any header of the family, and finds the names there that Debian's header has.
#[test]
fn every_header_of_debians_family_is_in_ours_and_shows_the_same_names() {
    let mut headers = 0;
    for entry in std::fs::read_dir("/usr/include/dat2").expect("apt-get install libdapl-dev") {
        let header = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            ours().join("dat2").join(&header).exists(),
            "ours has no dat2/{header}"
        );
        let (debian, ours) = (shown(&header, Family::Debian), shown(&header, Family::Ours));
        let missing: Vec<_> = debian
            .difference(&ours)
            .filter(|name| !INNER.contains(&name.as_str()))
            .collect();
        assert!(missing.is_empty(), "dat2/{header} lacks {missing:?}");
        headers += 1;
    }
    assert_eq!(headers, 11);
}

/// Names that are no definitions: the expansion of an alias of Debian's, which is defined nowhere, and a parameter.
const INNER: [&str; 2] = ["DAT_IA_FIELD_IA_MAX_DTO_PER_EP_IN", "dat_provider_list"];

const BEGIN_1_2: &str = "#include <stdio.h>\n#include <stddef.h>\n#include <dat/udat.h>\n\
     #include <dat/dat_registry.h>\nint main(void) {\n";

#[test]
fn layouts_of_1_2_are_those_that_were_measured() {
    let layouts = layouts(layouts![
        "DAT_LMR_TRIPLET" v1::DatLmrTriplet,
        "DAT_RMR_TRIPLET" v1::DatRmrTriplet,
        "DAT_DTO_COMPLETION_EVENT_DATA" v1::DatDtoCompletionEventData,
        "DAT_CR_ARRIVAL_EVENT_DATA" v1::DatCrArrivalEventData,
        "DAT_EVENT" v1::DatEvent,
        "DAT_IA_ATTR" v1::DatIaAttr,
        "DAT_PROVIDER_ATTR" v1::DatProviderAttr,
        "DAT_EP_ATTR" v1::DatEpAttr,
        "DAT_EP_PARAM" v1::DatEpParam,
        "DAT_LMR_PARAM" v1::DatLmrParam,
        "DAT_RMR_PARAM" v1::DatRmrParam,
        "DAT_CNO_PARAM" v1::DatCnoParam,
        "DAT_PROVIDER" table_1_2::DatProvider,
    ]);
    let rust = in_rust(&layouts);
    let c = print_layouts(BEGIN_1_2, &layouts);
    assert_eq!(run(&c, "c", Family::Ours), rust);
    // Measured by compiling a 1.2 family of headers.
    for line in [
        "DAT_IA_ATTR 688",
        "DAT_IA_ATTR.ia_address_ptr 528",
        "DAT_IA_ATTR.max_lmr_block_size 568",
        "DAT_IA_ATTR.max_message_size 592",
        "DAT_IA_ATTR.max_srqs 624",
        "DAT_IA_ATTR.num_transport_attr 660",
        "DAT_PROVIDER_ATTR 504",
        "DAT_PROVIDER_ATTR.max_private_data_size 292",
        "DAT_PROVIDER_ATTR.srq_supported 456",
        "DAT_PROVIDER_ATTR.num_provider_specific_attr 488",
        "DAT_EP_ATTR 104",
        "DAT_EP_ATTR.max_message_size 8",
        "DAT_EP_ATTR.recv_completion_flags 28",
        "DAT_EP_ATTR.max_recv_dtos 36",
        "DAT_EP_ATTR.srq_soft_hw 60",
        "DAT_EP_ATTR.ep_provider_specific 96",
        "DAT_EP_PARAM 192",
        "DAT_EVENT 48",
        "DAT_EVENT.event_data 16",
        "DAT_DTO_COMPLETION_EVENT_DATA.transfered_length 24",
        "DAT_LMR_TRIPLET 24",
        "DAT_LMR_TRIPLET.virtual_address 8",
        "DAT_RMR_TRIPLET.target_address 8",
        "DAT_RMR_PARAM 48",
        "DAT_LMR_PARAM 80",
        "DAT_CNO_PARAM 24",
        "DAT_SRQ_PARAM 48",
        "DAT_PROVIDER_INFO 268",
        "DAT_PROVIDER 560",
        "DAT_PROVIDER.srq_set_lw_func 552",
    ] {
        assert!(rust.lines().any(|l| l == line), "{line}");
    }
}

#[test]
fn the_slots_of_1_2_are_the_first_of_2_0() {
    let old = <table_1_2::DatProvider as CLayout>::FIELDS;
    assert_eq!(old, &<table::DatProvider as CLayout>::FIELDS[..old.len()]);
    assert_eq!(old.len(), 70);
}

#[test]
fn constants_of_1_2_that_2_0_changed() {
    let mut c = BEGIN_1_2.to_owned();
    let expected = [
        ("DAT_NOT_IMPLEMENTED", 0x0fff_0000_u64),
        ("DAT_INVALID_HANDLE_SRQ", 25),
        ("DAT_INVALID_HANDLE1", 26),
        ("DAT_INVALID_ARG1", 36),
        ("DAT_INVALID_STATE_SRQ_IN_USE", 86),
        ("DAT_PRIVILEGES_READ", 87),
        ("DAT_THREAD_SAFETY_NOT_FOUND", 101),
        ("DAT_SRQ_STATE_OPERATIONAL", 0),
        ("DAT_LMR_FIELD_ALL", 0x3ff),
        ("DAT_RMR_FIELD_ALL", 0x1f),
        ("DAT_IA_FIELD_ALL", 0x7_ffff_ffff),
        ("DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR", 0x8000_0000),
        ("DAT_EP_FIELD_PZ_HANDLE", 0x40),
        ("DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE", 0x1000),
        ("DAT_EP_FIELD_ALL", 0x7fff_f7ff),
        ("DAT_PROVIDER_FIELD_ALL", 0x3ff_ffff),
        ("DAT_CNO_FIELD_ALL", 0x3),
        ("DAT_PZ_SHAREABLE", 2),
        ("DAT_VERSION_MAJOR * 10 + DAT_VERSION_MINOR", 12),
    ];
    let mut text = String::new();
    for (name, value) in expected {
        writeln!(
            c,
            "printf(\"{name} %llx\\n\", (unsigned long long)({name}));"
        )
        .unwrap();
        writeln!(text, "{name} {value:x}").unwrap();
    }
    c += "return 0; }\n";
    assert_eq!(run(&c, "c", Family::Ours), text);
}
