//! Values to which C programs may keep pointers for ever: addresses, named attributes and the function tables of IAs. Each distinct
//! value is allocated once and never freed; there are as many as there are peers and adapters.

use std::any::TypeId;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::net::IpAddr;
use std::sync::{LazyLock, Mutex};

use dat_core::ia::Ia;
use dat_core::transport::Transport;
use dat_os::mutex::lock;

use crate::sockaddr::{self, SockAddr};
use crate::types::{DatIaAddressPtr, DatNamedAttr};
use crate::v2_0::types::DatComm;

/// The interned values of a kind: from content to address.
type Interned<Content> = LazyLock<Mutex<HashMap<Content, usize>>>;

/// Socket addresses, by IP address, scope and port.
static ADDRESSES: Interned<(Option<IpAddr>, u32, u16)> = LazyLock::new(Mutex::default);
static ATTRIBUTES: Interned<Vec<(String, String)>> = LazyLock::new(Mutex::default);

static TABLES: LazyLock<Mutex<HashMap<TableKey, usize>>> = LazyLock::new(Mutex::default);

/// IA name, major version and transport.
type TableKey = (String, u32, TypeId);

/// Returns the address of the function table of the IA `name` on transport `T`, which `make` makes at the first open. Each name has
/// its own table: in dat_ia_close a classic registry finds the IA by its table's `device_name`.
pub(crate) fn table<T: 'static, Table: 'static>(
    name: &str,
    major: u32,
    make: impl FnOnce(*const c_char) -> Table,
) -> usize {
    let mut interned = lock(&TABLES);
    *interned
        .entry((name.to_owned(), major, TypeId::of::<T>()))
        .or_insert_with(|| {
            // The name was a C string, so it contains no NUL.
            let name = CString::new(name).unwrap_or_default();
            let table = make(Box::leak(name.into_boxed_c_str()).as_ptr());
            std::ptr::from_mut(Box::leak(Box::new(table))) as usize
        })
}

/// Returns a pointer to a `sockaddr_in` or `sockaddr_in6` with port 0; for `None` to one of family 0. `scope` is that of link-local
/// addresses, see [`scope_of`].
pub(crate) fn address(ip: Option<IpAddr>, scope: u32) -> DatIaAddressPtr {
    address_with_port(ip, scope, 0)
}

/// Returns a pointer to a `sockaddr_in` or `sockaddr_in6` with a port, as [`address`] does.
pub(crate) fn address_with_port(ip: Option<IpAddr>, scope: u32, port: u16) -> DatIaAddressPtr {
    let scope = sockaddr::link_scope(ip, scope);
    let mut interned = lock(&ADDRESSES);
    let at = *interned.entry((ip, scope, port)).or_insert_with(|| {
        let c_address: &'static mut SockAddr =
            Box::leak(Box::new(sockaddr::c_address(ip, scope, port)));
        c_address.as_mut_ptr() as usize
    });
    at as *mut c_void
}

/// Returns the scope of link-local addresses of `ia` and of its peers, which are on the same link; 0 if the IA is closed.
pub(crate) fn scope_of<T: Transport>(ia: &Ia<T>) -> u32 {
    ia.attributes().map_or(0, |attr| attr.scope_id)
}

/// Returns a pointer to a `DAT_COMM` with this content, for `DAT_CSP_PARAM`.
pub(crate) fn comm(comm: DatComm) -> *mut DatComm {
    static COMMS: Interned<[i32; 3]> = LazyLock::new(Mutex::default);
    let mut interned = lock(&COMMS);
    let key = [comm.domain, comm.r#type, comm.protocol];
    let at = *interned
        .entry(key)
        .or_insert_with(|| std::ptr::from_mut(Box::leak(Box::new(comm))) as usize);
    at as *mut DatComm
}

/// Returns a pointer to the array of these named attributes, in order.
pub(crate) fn named(attributes: &[(String, String)]) -> *mut DatNamedAttr {
    let mut interned = lock(&ATTRIBUTES);
    if let Some(at) = interned.get(attributes) {
        return *at as *mut DatNamedAttr;
    }
    let text = |s: &str| {
        CString::new(s.replace('\0', " "))
            .unwrap_or_default()
            .into_raw()
            .cast_const()
    };
    let array: Vec<DatNamedAttr> = attributes
        .iter()
        .map(|(name, value)| DatNamedAttr {
            name: text(name),
            value: text(value),
        })
        .collect();
    let at = Box::leak(array.into_boxed_slice()).as_mut_ptr();
    interned.insert(attributes.to_vec(), at as usize);
    at
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn equal_addresses_are_one_pointer_and_read_back() {
        for text in ["10.1.2.3:0", "[fd09::1]:0", "[fd09::1]:4711"] {
            let at: SocketAddr = text.parse().unwrap();
            let pointer = address_with_port(Some(at.ip()), 0, at.port());
            assert_eq!(pointer, address_with_port(Some(at.ip()), 0, at.port()));
            // SAFETY: just made.
            assert_eq!(unsafe { sockaddr::read(pointer.cast()) }, Some(at));
        }
        // SAFETY: an interned address of family 0.
        assert_eq!(unsafe { sockaddr::read(address(None, 0).cast()) }, None);
    }

    #[test]
    fn named_attributes_are_c_strings_made_once() {
        let list = vec![("DAT_A".to_owned(), "TRUE".to_owned())];
        let at = named(&list);
        assert_eq!(at, named(&list));
        // SAFETY: just made, one element.
        let value = unsafe { std::ffi::CStr::from_ptr((*at).value) };
        assert_eq!(value.to_str(), Ok("TRUE"));
    }
}
