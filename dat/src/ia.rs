//! Interface adapters.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::sync::Arc;

use dat_abi::types::DAT_HANDLE_NULL;
use dat_abi::v2_0::table::DatProvider;
use dat_abi::v2_0::types::{DatIaAttr, DatProviderAttr};
use dat_registry::registrations::Table;

use crate::attributes::Attributes;
use crate::error::Result;
use crate::memory::limbo::Limbo;
use crate::names::find;
use crate::registry::registry;
use crate::serial;
use crate::sys::{Handle, absent, call, done, free};

/// `DAT_IA_FIELD_ALL`. DAPL refuses any other bit.
const IA_FIELD_ALL: u64 = 0x3F_FFFF_FFFF;
/// `DAT_PROVIDER_FIELD_ALL`.
const PROVIDER_FIELD_ALL: u64 = 0x7FFF_FFFF;

/// Events that the asynchronous dispatcher holds.
const ASYNC_EVENTS: i32 = 64;

/// An open interface adapter. Clones are the same adapter; it is closed when the last clone and the last of its objects are dropped.
///
/// ```
/// use udapl::Ia;
///
/// # fn main() -> Result<(), udapl::Error> {
/// let ia = Ia::open("softrxe-lo")?;
/// let also = ia.clone(); // the same adapter
/// drop(ia);
/// let pz = also.create_pz()?;
/// assert_eq!((also.name(), pz.ia().name()), ("softrxe-lo", "softrxe-lo"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Ia {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: Handle,
    async_evd: Handle,
    name: String,
    table: Table,
    limbo: Limbo,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The provider may be unloaded too.
        let _turn = serial::enter(self.handle.table_address());
        free!(self.handle, ia_close(0));
        registry().close(&self.name, 2, self.table);
    }
}

impl Ia {
    /// Opens the adapter of this name (dat_ia_open): one of dat.conf, else one that is built in ([`built_in`](crate::built_in)).
    ///
    /// ```
    /// use udapl::{Error, Ia};
    ///
    /// match Ia::open("no-such-adapter") {
    ///     Ok(ia) => println!("{} is open", ia.name()),
    ///     Err(Error::Lookup(error)) => eprintln!("{error}"), // which names there are, and where was looked
    ///     Err(error) => eprintln!("the provider refuses: {error}"),
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lookup`](crate::Error::Lookup) if the name or its provider is missing; [`Error::Call`](crate::Error::Call) with the
    /// provider's code. Its messages go to `tracing`.
    pub fn open(name: &str) -> Result<Self> {
        let (found, thread_safe) = find(name)?;
        match open_with(found.table, &found.name, thread_safe) {
            Ok((handle, async_evd)) => Ok(Self {
                inner: Arc::new(Inner {
                    handle,
                    async_evd,
                    name: found.name,
                    table: found.table,
                    limbo: Limbo::default(),
                }),
            }),
            Err(error) => {
                let _turn = (!thread_safe).then(serial::lock);
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

    #[inline]
    pub(crate) fn handle(&self) -> Handle {
        self.inner.handle
    }

    pub(crate) fn limbo(&self) -> &Limbo {
        &self.inner.limbo
    }

    /// Returns the handle of the asynchronous dispatcher.
    pub(crate) fn async_handle(&self) -> Handle {
        self.inner.async_evd
    }

    /// Returns the attributes of the adapter (dat_ia_query).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn attributes(&self) -> Result<Attributes> {
        let (ia, provider) = self.raw_attributes()?;
        // SAFETY: filled by the provider; what they point to stays valid while the adapter is open.
        Ok(unsafe { Attributes::of(&ia, &provider) })
    }

    /// Returns the attributes as the provider fills them in.
    pub(crate) fn raw_attributes(&self) -> Result<(DatIaAttr, DatProviderAttr)> {
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
        Ok(unsafe { (ia.assume_init(), provider.assume_init()) })
    }

    /// Returns whether the adapter named `other` can replace this one when it fails (dat_ia_ha_related).
    ///
    /// ```
    /// # use udapl::Ia;
    /// # fn main() -> Result<(), udapl::Error> {
    /// let ia = Ia::open("softrxe-lo")?;
    /// if ia.is_ha_related("softrxe-eth1")? {
    ///     println!("a program may go on with softrxe-eth1");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn is_ha_related(&self, other: &str) -> Result<bool> {
        let other = CString::new(other.replace('\0', " ")).unwrap_or_default();
        let mut answer = 0;
        call!(
            self.handle(),
            ia_ha_related(other.as_ptr(), &raw mut answer)
        )?;
        Ok(answer != 0)
    }
}

fn open_with(table: Table, name: &str, thread_safe: bool) -> Result<(Handle, Handle)> {
    // SAFETY: a table that a provider registered as one of 2.0; it is not freed while it counts as opened.
    let provider = unsafe { &*(table.0 as *const DatProvider) };
    let text = CString::new(name.replace('\0', " ")).unwrap_or_default();
    let mut async_evd = DAT_HANDLE_NULL;
    let mut handle = DAT_HANDLE_NULL;
    let slot = provider.ia_open.ok_or_else(|| absent("dat_ia_open"))?;
    let _turn = (!thread_safe).then(serial::lock);
    // SAFETY: the name is a C string, and the outputs are live.
    done("dat_ia_open", unsafe {
        slot(
            text.as_ptr(),
            ASYNC_EVENTS,
            &raw mut async_evd,
            &raw mut handle,
        )
    })?;
    let handle = Handle(handle);
    if !thread_safe {
        serial::serialise(handle.table_address());
    }
    Ok((handle, Handle(async_evd)))
}

/// Queries the adapter of this name without keeping it open (dat_ib_open_query, dat_ib_close_query).
///
/// ```
/// # fn main() -> Result<(), udapl::Error> {
/// for name in udapl::built_in() {
///     match udapl::attributes_of(name) {
///         Ok(attributes) => println!("{name}: {} at {}", attributes.adapter, attributes.address),
///         Err(error) => println!("{name} cannot be used here: {error}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`Ia::open`].
pub fn attributes_of(name: &str) -> Result<Attributes> {
    Ia::open(name)?.attributes()
}
