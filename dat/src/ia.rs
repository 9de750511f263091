//! Interface adapters.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Once};

use dat_abi::ret::DAT_SUCCESS;
use dat_abi::sockaddr;
use dat_abi::types::{DAT_HANDLE_NULL, DatProviderInfo};
use dat_abi::v2_0::table::DatProvider;
use dat_abi::v2_0::types::{DatIaAttr, DatProviderAttr};
use dat_core::error::{Error as Code, Kind};
use dat_registry::catalog::Request;
use dat_registry::classic::RegistryFunctions;
use dat_registry::registrations::{RegisterError, Registered, Table};
use dat_registry::registry::{LookupError, Opened, Registry};

use crate::error::Result;
use crate::serial;
use crate::sys::{Handle, absent, call, done, free};

/// `DAT_IA_FIELD_ALL`. DAPL refuses any other bit.
const IA_FIELD_ALL: u64 = 0x3F_FFFF_FFFF;
/// `DAT_PROVIDER_FIELD_ALL`.
const PROVIDER_FIELD_ALL: u64 = 0x7FFF_FFFF;

static REGISTRY: Registry = Registry::new();

/// Returns the registry. The first call sets the path of the program, unless it gained rights, so that a prefix works in place.
fn registry() -> &'static Registry {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        REGISTRY.set_own_path_to_program();
        REGISTRY.serve_classic(RegistryFunctions {
            add: add_provider,
            remove: remove_provider,
        });
    });
    &REGISTRY
}

/// Returns the registration that a provider describes; `None` if it passes NULL.
///
/// # Safety
/// `info` is NULL or valid.
unsafe fn registered(
    table: *const std::ffi::c_void,
    info: *const DatProviderInfo,
) -> Option<Registered> {
    if table.is_null() || info.is_null() {
        return None;
    }
    // SAFETY: not NULL, so valid by the caller's promise.
    let info = unsafe { info.read_unaligned() };
    Some(Registered {
        name: info.name(),
        major: info.dapl_version_major,
        minor: info.dapl_version_minor,
        thread_safe: info.is_thread_safe != 0,
        table: Table(table as usize),
        open: 0,
    })
}

/// Returns the code that a provider gets for what the registry did.
fn code_of(done: Option<Result<(), RegisterError>>) -> u32 {
    let kind = match done {
        Some(Ok(())) => return DAT_SUCCESS,
        Some(Err(RegisterError::Already)) => Kind::ProviderAlreadyRegistered,
        Some(Err(RegisterError::NotFound)) => Kind::ProviderNotFound,
        Some(Err(RegisterError::InUse)) => Kind::ProviderInUse,
        None => Kind::InvalidParameter,
    };
    Code::of(kind).code()
}

/// Registers a provider (dat_registry_add_provider); called by it during its init.
unsafe extern "C" fn add_provider(
    table: *const std::ffi::c_void,
    info: *const DatProviderInfo,
) -> u32 {
    // SAFETY: the provider passes the info that the registry gave it.
    let new = unsafe { registered(table, info) };
    code_of(new.map(|new| registry().registrations.add(new)))
}

/// Removes a registration (dat_registry_remove_provider); called by a classic provider when it is unloaded.
unsafe extern "C" fn remove_provider(
    table: *const std::ffi::c_void,
    info: *const DatProviderInfo,
) -> u32 {
    // SAFETY: the provider passes the info that the registry gave it.
    let old = unsafe { registered(table, info) };
    code_of(old.map(|old| registry().registrations.remove(&old)))
}

/// Finds the provider of a name: a thread-safe one if there is one, else one whose calls are made one after the other. Returns it,
/// and whether it is thread safe.
fn find(name: &str) -> Result<(Opened, bool)> {
    let request = |thread_safe| Request {
        name,
        major: 2,
        minor: 0,
        thread_safe,
    };
    match registry().lookup(&request(true), add_provider) {
        Err(LookupError::NoEntry(_)) => {
            Ok((registry().lookup(&request(false), add_provider)?, false))
        }
        found => Ok((found?, true)),
    }
}

/// Returns names and libraries of the IAs in dat.conf that this API can open, in file order.
///
/// # Errors
/// [`Error::Lookup`](crate::Error::Lookup) if there is no configuration.
pub fn configured() -> Result<Vec<(String, String)>> {
    let catalog = registry()
        .catalog()
        .map_err(dat_registry::registry::LookupError::Search)?;
    let ours = catalog
        .entries()
        .iter()
        .filter(|e| !e.api.kernel && e.api.major == 2 && !e.is_pattern());
    Ok(ours
        .map(|e| {
            (
                e.name.clone(),
                format!("{} {:?} ({})", e.library, e.ia_params, e.origin),
            )
        })
        .collect())
}

/// An open interface adapter. Clones are the same adapter; it is closed when the last clone and the last of its objects are dropped.
#[derive(Clone, Debug)]
pub struct Ia {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: Handle,
    name: String,
    table: Table,
}

impl Drop for Inner {
    fn drop(&mut self) {
        free!(self.handle, ia_close(0));
        registry().close(&self.name, 2, self.table);
    }
}

/// Attributes of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Name of the device.
    pub adapter: String,
    /// Name of the vendor.
    pub vendor: String,
    /// Address to which peers connect.
    pub address: IpAddr,
    /// Maximum of endpoints.
    pub max_eps: u32,
    /// Maximum length of a message, in bytes.
    pub max_message_size: u64,
    /// Maximum length of an RDMA operation, in bytes.
    pub max_rdma_size: u64,
    /// Maximum length of private data in a connection request, in bytes.
    pub max_private_data: u32,
    /// The provider's named attributes, e.g. `DAT_IB_TRANSPORT_MTU`.
    pub named: Vec<(String, String)>,
}

impl Ia {
    /// Opens the adapter of this name in dat.conf (dat_ia_open).
    ///
    /// # Errors
    /// [`Error::Lookup`](crate::Error::Lookup) if the name or its provider is missing; [`Error::Call`](crate::Error::Call) with the
    /// provider's code. Its messages go to `tracing`.
    pub fn open(name: &str) -> Result<Self> {
        let (found, thread_safe) = find(name)?;
        match open_with(found.table, &found.name, thread_safe) {
            Ok(handle) => Ok(Self {
                inner: Arc::new(Inner {
                    handle,
                    name: found.name,
                    table: found.table,
                }),
            }),
            Err(error) => {
                registry().close(&found.name, 2, found.table);
                if let Some(origin) = found.origin {
                    tracing::error!("dat_ia_open({name:?}) failed; its entry is {origin}");
                }
                Err(error)
            }
        }
    }

    /// Returns the adapter's name in dat.conf: that of the entry, where it was opened by an alias.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    pub(crate) fn handle(&self) -> Handle {
        self.inner.handle
    }

    /// Returns the attributes of the adapter (dat_ia_query).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn attributes(&self) -> Result<Attributes> {
        let mut ia = MaybeUninit::<DatIaAttr>::zeroed();
        let mut provider = MaybeUninit::<DatProviderAttr>::zeroed();
        call!(
            self.handle(),
            ia_query(
                std::ptr::null_mut(),
                IA_FIELD_ALL,
                ia.as_mut_ptr(),
                PROVIDER_FIELD_ALL,
                provider.as_mut_ptr()
            )
        )?;
        // SAFETY: zeroed, then filled by the provider; both types are plain data for which all-zero is valid.
        let (ia, provider) = unsafe { (ia.assume_init(), provider.assume_init()) };
        let number = |n: i32| u32::try_from(n).unwrap_or(0);
        let count = number(provider.num_provider_specific_attr) as usize;
        let mut named = Vec::new();
        if !provider.provider_specific_attr.is_null() {
            for at in 0..count {
                // SAFETY: the provider's array has `count` entries of C strings, which stay valid.
                named.push(unsafe {
                    let attr = *provider.provider_specific_attr.add(at);
                    (text(attr.name), text(attr.value))
                });
            }
        }
        Ok(Attributes {
            adapter: text_of(&ia.adapter_name),
            vendor: text_of(&ia.vendor_name),
            address: address(ia.ia_address_ptr.cast()),
            max_eps: number(ia.max_eps),
            max_message_size: ia.max_message_size.into(),
            max_rdma_size: ia.max_rdma_size.into(),
            max_private_data: number(provider.max_private_data_size),
            named,
        })
    }
}

fn open_with(table: Table, name: &str, thread_safe: bool) -> Result<Handle> {
    // SAFETY: a table that a provider registered as one of 2.0; it is not freed while it counts as opened.
    let provider = unsafe { &*(table.0 as *const DatProvider) };
    let text = CString::new(name.replace('\0', " ")).unwrap_or_default();
    let mut async_evd = DAT_HANDLE_NULL;
    let mut handle = DAT_HANDLE_NULL;
    let slot = provider.ia_open.ok_or_else(|| absent("dat_ia_open"))?;
    let _turn = (!thread_safe).then(serial::lock);
    // SAFETY: the name is a C string, and the outputs are live.
    done("dat_ia_open", unsafe {
        slot(text.as_ptr(), 16, &raw mut async_evd, &raw mut handle)
    })?;
    let handle = Handle(handle);
    if !thread_safe {
        serial::serialise(handle.table_address());
    }
    Ok(handle)
}

/// # Safety
/// NULL or a C string.
unsafe fn text(c: *const std::ffi::c_char) -> String {
    if c.is_null() {
        return String::new();
    }
    // SAFETY: not NULL, so a C string by the caller's promise.
    unsafe { CStr::from_ptr(c) }.to_string_lossy().into_owned()
}

fn text_of(name: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = name
        .iter()
        .map(|c| *c as u8)
        .take_while(|b| *b != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the IP address of a provider's socket address; the unspecified one if there is none.
pub(crate) fn address(at: *const u8) -> IpAddr {
    // SAFETY: a provider's DAT_IA_ADDRESS_PTR is NULL or a socket address of the size that its family says.
    let at = unsafe { sockaddr::read(at) };
    at.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |at| at.ip())
}
