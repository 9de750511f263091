//! The `dat` command.
fn main() {}
