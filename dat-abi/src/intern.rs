//! Things that C holds by pointer for as long as it likes: addresses, named attributes and IAs' function tables. Each
//! distinct one is kept for ever; there are as many as there are peers and adapters.

use std::any::TypeId;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::net::IpAddr;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::sockaddr::{self, Room};
use crate::types::{DatIaAddressPtr, DatNamedAttr};
use crate::v2_0::types::DatComm;

/// What is kept of each kind: content to address.
type Known<Content> = LazyLock<Mutex<HashMap<Content, usize>>>;

/// Address, scope and port.
static ADDRESSES: Known<(Option<IpAddr>, u32, u16)> = LazyLock::new(Mutex::default);
static ATTRIBUTES: Known<Vec<(String, String)>> = LazyLock::new(Mutex::default);

static TABLES: LazyLock<Mutex<HashMap<TableKey, usize>>> = LazyLock::new(Mutex::default);

/// Name of the IA, major version, transport.
type TableKey = (String, u32, TypeId);

/// The address of the function table of the IA `name` on transport `T`, made at its first open. One a name: a classic
/// registry looks the IA up by its table's `device_name` in dat_ia_close.
pub(crate) fn table<T: 'static, Table: 'static>(
    name: &str,
    major: u32,
    make: impl FnOnce(*const c_char) -> Table,
) -> usize {
    let mut known = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    *known
        .entry((name.to_owned(), major, TypeId::of::<T>()))
        .or_insert_with(|| {
            // An IA's name came as a C string: it holds no NUL.
            let name = CString::new(name).unwrap_or_default();
            let table = make(Box::leak(name.into_boxed_c_str()).as_ptr());
            std::ptr::from_mut(Box::leak(Box::new(table))) as usize
        })
}

/// A `sockaddr_in` or `sockaddr_in6` with port 0; for `None` one of family 0.
pub(crate) fn address(ip: Option<IpAddr>, scope: u32) -> DatIaAddressPtr {
    address_with_port(ip, scope, 0)
}

/// The same with a port.
pub(crate) fn address_with_port(ip: Option<IpAddr>, scope: u32, port: u16) -> DatIaAddressPtr {
    let mut known = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
    let at = *known.entry((ip, scope, port)).or_insert_with(|| {
        let room: &'static mut Room = Box::leak(Box::new(sockaddr::room(ip, scope, port)));
        room.as_mut_ptr() as usize
    });
    at as *mut c_void
}

/// One of its own for each protocol family: `DAT_CSP_PARAM` has a pointer to it.
pub(crate) fn comm(comm: DatComm) -> *mut DatComm {
    static COMMS: Known<[i32; 3]> = LazyLock::new(Mutex::default);
    let mut known = COMMS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = [comm.domain, comm.r#type, comm.protocol];
    let at = *known
        .entry(key)
        .or_insert_with(|| std::ptr::from_mut(Box::leak(Box::new(comm))) as usize);
    at as *mut DatComm
}

/// The array of named attributes, in order.
pub(crate) fn named(attributes: &[(String, String)]) -> *mut DatNamedAttr {
    let mut known = ATTRIBUTES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = known.get(attributes) {
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
    known.insert(attributes.to_vec(), at as usize);
    at
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn an_address_is_one_pointer_and_reads_back() {
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
