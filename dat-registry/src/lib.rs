//! dat.conf, provider loading and the registry of interface adapters.
