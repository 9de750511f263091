//! libdat2.so.2: the uDAPL 2.0 C library.
