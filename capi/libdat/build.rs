//! Gives the shared object its soname and its version node, which is that of OpenFabrics' compat-dapl 1.2.

#[path = "../version_node.rs"]
mod version_node;

fn main() {
    version_node::link("libdat.so.1", "DAT_1.2", None);
}
