//! Writes the generated regions of Rust sources.

use crate::manifest::{Slot, Version};
use crate::text::line;

/// Functions that the libraries define by hand: they do more than a call of the slot.
const DEFINED_BY_HAND: [&str; 3] = ["ia_open", "ia_close", "handle_extendedop"];

/// The members of the struct, in the form of `provider_table!`.
pub(crate) fn table(out: &mut String, slots: &[(&Slot, &str)]) {
    for (slot, args) in slots {
        line(out, &format!("        /// {}", slot.says));
        let name = &slot.name;
        let abi = match slot.abi() {
            "" => String::new(),
            abi => format!(" {abi}"),
        };
        line(out, &format!("        {name}{abi}({});", rust_args(args)));
    }
}

/// The fields of the constant table.
pub(crate) fn thunks(out: &mut String, version: Version, slots: &[(&Slot, &str)]) {
    for (slot, _) in slots {
        let name = &slot.name;
        let thunk = match slot.shared {
            true => format!("shared::{name}::<T, {version:?}>"),
            false => format!("own::{name}::<T>"),
        };
        line(out, &format!("        {name}: Some({thunk}),"));
    }
}

/// Exported functions: all, or only those whose first argument is an IA, any handle, or a handle of another kind.
pub(crate) fn exports(
    out: &mut String,
    slots: &[(&Slot, &str)],
    only: &[&str],
) -> Result<(), String> {
    for (slot, args) in slots {
        let name = &slot.name;
        let (first, rest) = args.split_once(", ").unwrap_or((args, ""));
        let (handle, first) = c_arg(first);
        let selected = match only {
            [] => true,
            ["ia"] => handle == "DAT_IA_HANDLE",
            ["any"] => handle == "DAT_HANDLE",
            ["others"] => !["DAT_IA_HANDLE", "DAT_HANDLE"].contains(&handle),
            _ => return Err(format!("{only:?} selects nothing")),
        };
        if !selected || DEFINED_BY_HAND.contains(&&**name) {
            continue;
        }
        let (abi, wrong) = (slot.abi(), wrong_handle(handle));
        let rest = match rest {
            "" => String::new(),
            rest => format!(", {}", rust_args(rest)),
        };
        line(
            out,
            &format!("    /// {} (dat_{name}).", slot.says.trim_end_matches('.')),
        );
        line(
            out,
            &format!("    dat_{name} = {abi}{name} / {wrong} ({first}{rest});"),
        );
    }
    Ok(())
}

/// The subtype of `DAT_INVALID_HANDLE` for a wrong first argument of this C type.
fn wrong_handle(c_type: &str) -> String {
    let kind = c_type.trim_start_matches("DAT_").trim_end_matches("HANDLE");
    match kind.trim_end_matches('_') {
        // The specification has no subtype for "an EVD", nor for "any handle": the argument's number stands for it.
        "" | "EVD" => "InvalidHandle1".into(),
        kind => format!("InvalidHandle{}{}", &kind[..1], kind[1..].to_lowercase()),
    }
}

/// Splits a C parameter into type and name.
pub(crate) fn c_arg(arg: &str) -> (&str, &str) {
    let at = arg
        .rfind([' ', '*'])
        .unwrap_or_else(|| panic!("{arg:?} has no type"));
    (arg[..=at].trim(), &arg[at + 1..])
}

fn rust_args(args: &str) -> String {
    let rust: Vec<String> = args
        .split(", ")
        .map(|arg| {
            let (c_type, name) = c_arg(arg);
            format!("{name}: {}", rust_type(c_type))
        })
        .collect();
    rust.join(", ")
}

/// The Rust type of a C parameter.
fn rust_type(c_type: &str) -> String {
    if let Some(to) = c_type.strip_suffix('*') {
        return match to.trim().strip_prefix("const ") {
            Some(to) => format!("*const {}", rust_type(to)),
            None => format!("*mut {}", rust_type(to.trim())),
        };
    }
    let rust = match c_type {
        "const DAT_PVOID" => "*const c_void",
        "const DAT_NAME_PTR" => "*const c_char",
        // The platforms that we know pass it as a pointer.
        "va_list" => "*mut c_void",
        "DAT_CONTEXT" | "DAT_DTO_COOKIE" | "DAT_RMR_COOKIE" => "DatContext",
        "DAT_CONN_QUAL"
        | "DAT_VLEN"
        | "DAT_VADDR"
        | "DAT_IA_ATTR_MASK"
        | "DAT_PROVIDER_ATTR_MASK"
        | "DAT_EP_PARAM_MASK" => "u64",
        "DAT_FD" | "DAT_EXTENDED_OP" => "i32",
        "DAT_LMR_CONTEXT" | "DAT_RMR_CONTEXT" | "DAT_QOS" | "DAT_MEM_TYPE" | "DAT_VA_TYPE"
        | "DAT_EP_STATE" | "DAT_HANDLE_TYPE" => "u32",
        _ if c_type.ends_with("HANDLE") => "DatHandle",
        _ if c_type.ends_with("_FLAGS") || c_type.ends_with("_MASK") => "u32",
        _ => return camel(c_type),
    };
    rust.into()
}

/// `DAT_EP_ATTR` as `DatEpAttr`.
fn camel(name: &str) -> String {
    name.split('_')
        .map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase()))
        .collect()
}

/// The calls that the conformance suite makes with right and wrong arguments.
pub(crate) fn probes(slots: &[Slot]) -> String {
    let mut out = String::new();
    for slot in slots {
        let [old, new] = &slot.probes;
        match (old, new) {
            (None, None) => {}
            (Some(old), Some(new)) if old == new => probe(&mut out, "", slot, old),
            _ => {
                for (only, args) in [("#[V1_2] ", old), ("#[V2_0] ", new)] {
                    if let Some(args) = args {
                        probe(&mut out, only, slot, args);
                    }
                }
            }
        }
    }
    out
}

fn probe(out: &mut String, only: &str, slot: &Slot, args: &str) {
    let call = format!("    {only}{}({args})", slot.name);
    match &*slot.codes {
        "" => line(out, &format!("{call};")),
        codes => {
            line(out, &format!("{call}:"));
            line(out, &format!("        {codes};"));
        }
    }
}

/// Slots whose methods in the conformance suite are written by hand, because they record more or return another result.
const CALLED_BY_HAND: [&str; 2] = ["cno_wait", "ep_set_watermark"];

/// Methods of the conformance suite: the slots of both versions that take numbers only, or (`makes`) numbers and the address of
/// the handle that they make.
pub(crate) fn calls(slots: &[Slot], makes: bool) -> String {
    let mut out = String::new();
    for slot in slots {
        let [Some(args), Some(new)] = &slot.args else {
            continue;
        };
        let args = match args.rsplit_once(", ").filter(|_| makes) {
            Some((args, made)) if made.contains("_HANDLE *") => args,
            _ if makes => continue,
            _ => args,
        };
        let rust: Vec<String> = args
            .split(", ")
            .map(|arg| {
                let (c_type, name) = c_arg(arg);
                format!("{name}: {}", number_type(&rust_type(c_type)))
            })
            .collect();
        let only_numbers = rust.iter().all(|arg| !arg.ends_with('?'));
        if new != slot.args[0].as_ref().unwrap_or(new)
            || !only_numbers
            || CALLED_BY_HAND.contains(&&*slot.name)
        {
            continue;
        }
        line(&mut out, &format!("        /// {}", slot.says));
        line(
            &mut out,
            &format!("        {}({});", slot.name, rust.join(", ")),
        );
    }
    out
}

/// The number that a conformance test passes for a parameter; `?` for a structure or a pointer.
fn number_type(rust: &str) -> &str {
    match rust {
        "DatHandle" => "usize",
        "DatContext" => "u64",
        "DatCount" => "i32",
        "DatTimeout" | "DatBoolean" => "u32",
        "u32" | "u64" | "i32" => rust,
        _ => "?",
    }
}
