//! A safe Rust API for DAT: open an interface adapter by name.
