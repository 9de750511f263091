//! Writes the generated regions of C headers.

use std::fmt::Write as _;

use crate::rust::c_arg;
use crate::text::line;

const WIDTH: usize = 96;

/// Writes `begin`, the arguments and `end`, broken before an argument.
pub(crate) fn wrapped(out: &mut String, begin: &str, args: &str, end: &str) {
    let (lines, last) = broken(begin.into(), args, end, "    ", "");
    for text in lines {
        line(out, &text);
    }
    line(out, &last);
}

/// Breaks a list into lines that end in `tail`, and a last one.
fn broken(begin: String, args: &str, end: &str, indent: &str, tail: &str) -> (Vec<String>, String) {
    let (mut lines, mut current) = (Vec::new(), begin);
    let mut args = args.split(", ").peekable();
    while let Some(arg) = args.next() {
        let comma = if args.peek().is_some() { "," } else { end };
        let space = if current.ends_with(['(', ' ']) {
            ""
        } else {
            " "
        };
        if current.len() + space.len() + arg.len() + comma.len() + tail.len() > WIDTH {
            lines.push(format!("{}{tail}", current.trim_end()));
            current = indent.into();
        } else {
            current.push_str(space);
        }
        let _ = write!(current, "{arg}{comma}");
    }
    (lines, current)
}

/// Writes the macro that calls a slot through the table at the head of its first argument.
pub(crate) fn call_macro(out: &mut String, name: &str, args: &str) {
    let names: Vec<&str> = args.split(", ").map(|arg| c_arg(arg).1).collect();
    let begin = format!("#define DAT_{}(", name.to_uppercase());
    let (lines, last) = broken(begin, &names.join(", "), ") \\", "        ", " \\");
    for text in lines {
        line(out, &text);
    }
    line(out, &last);
    let call = format!("    DAT_HANDLE_TO_PROVIDER({})->{name}_func(", names[0]);
    let passed: Vec<String> = names.iter().map(|name| format!("({name})")).collect();
    let passed = passed.join(", ");
    if call.len() + passed.len() < WIDTH {
        line(out, &format!("{call}{passed})"));
        return;
    }
    line(out, &format!("{call}\\"));
    let (lines, last) = broken("        ".into(), &passed, ")", "        ", " \\");
    for text in lines {
        line(out, &text);
    }
    line(out, &last);
}
