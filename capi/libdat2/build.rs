//! Gives the shared object its soname and its version node.

#[path = "../version_node.rs"]
mod version_node;

fn main() {
    version_node::link("libdat2.so.2", "DAT_2.0", Some("dat_extension_op"));
}
