//! Compares `dat_transport.h` with the structures in Rust: a C compiler checks sizes, offsets and numbers. The header also compiles as C++.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use dat_transport::table::{
    Arrived, Attr, BindPost, Caps, ConnectTo, Done, FENCE, Post, PzView, SIGNALED, SOLICITED,
    Table, VERSION, op,
};

/// Compiles `source` without output; returns what the compiler said, and whether it agreed.
fn compile(source: &str, language: &str) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("check").with_extension(language);
    std::fs::write(&file, source).expect("written");
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let done = Command::new(if language == "c" { "gcc" } else { "g++" })
        .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(top.join("include"))
        .arg("-I")
        .arg(top.join("../../capi/include"))
        .arg(&file)
        .output()
        .expect("a C compiler");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    (done.status.success(), said)
}

/// Writes assertions about a structure: its size, and the offset of each field.
macro_rules! structure {
    ($to:ident, $rust:ident, $c:literal: $($field:ident)*) => {
        equal(&mut $to, &format!("sizeof(struct {})", $c), size_of::<$rust>());
        $(equal(&mut $to, &format!("offsetof(struct {}, {})", $c, stringify!($field)), offset_of!($rust, $field));)*
    };
}

fn equal(to: &mut String, what: &str, value: usize) {
    writeln!(to, "_Static_assert({what} == {value}, \"{what}\");").expect("a string");
}

fn assertions() -> String {
    let mut to = String::from("#include <dat_transport.h>\n");
    structure!(to, PzView, "dat_transport_pz": adapter context number reserved);
    structure!(to, Attr, "dat_transport_attr": adapter_name vendor_name address max_message_size max_rdma_size max_eps
        max_dto_per_ep max_iov max_rdma_read_in max_rdma_read_out max_private_data_size max_srqs max_rmrs zero_based
        atomics immediate reserved);
    structure!(to, Caps, "dat_transport_qp_caps": max_request max_recv max_request_iov max_recv_iov rdma_read_in rdma_read_out);
    structure!(to, Post, "dat_transport_request": id op flags iov length remote_address operands iov_count key immediate reserved);
    structure!(to, BindPost, "dat_transport_bind": id rmr lmr address length rights va_type flags bound);
    structure!(to, Done, "dat_transport_completion": id ep status receive length immediate invalidated solicited);
    structure!(to, ConnectTo, "dat_transport_connect": token conn_qual remote private_data private_data_size reserved timeout);
    structure!(to, Arrived, "dat_transport_arrival": remote local private_data private_data_size reserved);
    structure!(to, Table, "dat_transport": version size name settings);
    for (slot, offset) in Table::SLOTS {
        equal(
            &mut to,
            &format!("offsetof(struct dat_transport, {slot})"),
            *offset,
        );
    }
    let numbers = [
        ("DAT_TRANSPORT_VERSION", VERSION),
        ("DAT_TRANSPORT_INTERFACE", dat_abi::export::INTERFACE),
        ("DAT_TRANSPORT_SIGNALED", SIGNALED),
        ("DAT_TRANSPORT_SOLICITED", SOLICITED),
        ("DAT_TRANSPORT_FENCE", FENCE),
        ("DAT_TRANSPORT_SEND", op::SEND),
        ("DAT_TRANSPORT_SEND_INVALIDATE", op::SEND_INVALIDATE),
        ("DAT_TRANSPORT_SEND_IMMEDIATE", op::SEND_IMMEDIATE),
        ("DAT_TRANSPORT_WRITE", op::WRITE),
        ("DAT_TRANSPORT_WRITE_IMMEDIATE", op::WRITE_IMMEDIATE),
        ("DAT_TRANSPORT_READ", op::READ),
        ("DAT_TRANSPORT_COMPARE_SWAP", op::COMPARE_SWAP),
        ("DAT_TRANSPORT_FETCH_ADD", op::FETCH_ADD),
        ("DAT_TRANSPORT_RECEIVE", 1),
        ("DAT_TRANSPORT_RECEIVE_WRITE_IMMEDIATE", 4),
        ("DAT_TRANSPORT_ESTABLISHED", 0),
        ("DAT_TRANSPORT_BROKEN", 6),
        ("DAT_TRANSPORT_FAULT_LAST_RECEIVE", 3),
    ];
    for (name, value) in numbers {
        equal(&mut to, name, value as usize);
    }
    to
}

#[test]
fn the_header_has_the_layouts_and_numbers_of_rust() {
    let (agrees, said) = compile(&assertions(), "c");
    assert!(agrees, "{said}");
}

#[test]
fn a_difference_would_be_found() {
    let wrong = assertions() + "_Static_assert(sizeof(struct dat_transport_pz) == 25, \"pz\");\n";
    assert!(!compile(&wrong, "c").0);
}

#[test]
fn the_header_and_the_macro_compile_as_cpp() {
    let source = "#include <dat_transport.h>\nstatic struct dat_transport mine;\nextern \"C\" { DAT_TRANSPORT_EXPORT(mine) }\n";
    let (agrees, said) = compile(source, "cpp");
    assert!(agrees, "{said}");
}
