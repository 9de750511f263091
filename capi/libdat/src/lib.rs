//! libdat.so.1: the uDAPL 1.2 C library.
