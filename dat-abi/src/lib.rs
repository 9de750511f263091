//! C layouts, handles and function tables of uDAPL 1.2 and 2.0.
