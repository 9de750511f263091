//! The C functions of the registry (dat_registry_*).

use std::ffi::{CStr, c_char, c_void};

use dat_abi::ret::unpack_v2_0;
use dat_abi::types::{DatCount, DatProviderInfo};
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_registry::registrations::{RegisterError, Registered};

use crate::{Library, shared_object};

/// dat_registry_add_provider or dat_registry_remove_provider.
type RegistryFn = unsafe extern "C" fn(*const c_void, *const DatProviderInfo) -> u32;

/// Converts a refusal of the registry to an error of the specification.
fn error_of(error: RegisterError) -> Error {
    Error::of(match error {
        RegisterError::Already => Kind::ProviderAlreadyRegistered,
        RegisterError::NotFound => Kind::ProviderNotFound,
        RegisterError::InUse => Kind::ProviderInUse,
    })
}

/// Copies an info; returns `None` for NULL.
///
/// # Safety
/// `info` is NULL or valid, at any alignment.
unsafe fn read_info(info: *const DatProviderInfo) -> Option<DatProviderInfo> {
    // SAFETY: not NULL, so valid by the caller's promise.
    (!info.is_null()).then(|| unsafe { info.read_unaligned() })
}

impl Library {
    /// Runs `own` with the registration that a C caller describes. If that is of the other version, calls the function `name` of the
    /// other library instead: where both libraries are in the global scope a provider's call may reach either.
    ///
    /// # Safety
    /// `info` is NULL or valid.
    unsafe fn route_by_version(
        &'static self,
        name: &CStr,
        table: *const c_void,
        info: *const DatProviderInfo,
        own: impl FnOnce(Registered) -> Result<()>,
    ) -> Result<()> {
        if table.is_null() {
            return Err(Error::arg(1));
        }
        // SAFETY: NULL or valid by the caller's promise.
        let known = unsafe { read_info(info) }.ok_or(Error::arg(2))?;
        if known.dapl_version_major == self.version.major {
            return own(Registered::new(table, &known));
        }
        // The other library would pass a version that neither knows back to this one.
        if !matches!(known.dapl_version_major, 1 | 2) {
            return Err(Error::arg(2));
        }
        let theirs = shared_object::function(self.version.other_soname, name);
        if theirs.is_null() {
            return Err(Error::arg(2));
        }
        // SAFETY: either library exports that name with this signature (dat_registry.h).
        let theirs = unsafe { std::mem::transmute::<*mut c_void, RegistryFn>(theirs) };
        // SAFETY: the function has the same contract.
        unpack_v2_0((self.version.from_other)(unsafe { theirs(table, info) }))
    }

    /// Registers a provider's table (dat_registry_add_provider). `foreign` is called after that, unless it is `None`: for a
    /// provider of ours, which this library initialised.
    ///
    /// # Safety
    /// `info` is NULL or valid; `table` is NULL or one of the version that `info` says, for as long as it is registered.
    pub unsafe fn add(
        &'static self,
        table: *const c_void,
        info: *const DatProviderInfo,
        foreign: Option<fn()>,
    ) -> u32 {
        self.guard(|| {
            let own = |new| {
                self.registry().registrations.add(new).map_err(error_of)?;
                if let Some(foreign) = foreign {
                    foreign();
                }
                Ok(())
            };
            // SAFETY: the contract of the function.
            unsafe { self.route_by_version(c"dat_registry_add_provider", table, info, own) }
        })
    }

    /// Removes a registration (dat_registry_remove_provider).
    ///
    /// # Safety
    /// `info` is NULL or valid.
    pub unsafe fn remove(&'static self, table: *const c_void, info: *const DatProviderInfo) -> u32 {
        self.guard(|| {
            let own = |old| self.registry().registrations.remove(&old).map_err(error_of);
            // SAFETY: the contract of the function.
            unsafe { self.route_by_version(c"dat_registry_remove_provider", table, info, own) }
        })
    }

    /// Lists providers (dat_registry_list_providers). `number` is always set to the number of providers. An array that is too small
    /// is filled and refused as argument 1.
    ///
    /// # Safety
    /// `number` is NULL or valid; `list` is NULL or has `room` pointers, each NULL or valid.
    pub unsafe fn list(
        &'static self,
        room: DatCount,
        number: *mut DatCount,
        list: *const *mut DatProviderInfo,
    ) -> u32 {
        self.guard_from_fork(|| {
            if number.is_null() {
                return Err(Error::arg(2));
            }
            let all = self.registry().list(self.version.major);
            // SAFETY: not NULL, so valid by the contract of the function.
            unsafe {
                number.write_unaligned(DatCount::try_from(all.len()).unwrap_or(DatCount::MAX));
            }
            let room = usize::try_from(room).map_err(|_| Error::arg(1))?;
            if room > 0 && list.is_null() {
                return Err(Error::arg(3));
            }
            for (at, (name, major, minor, thread_safe)) in all.iter().take(room).enumerate() {
                // SAFETY: `list` has `room` pointers, each NULL or valid, by the contract of the function.
                unsafe {
                    let to = list.add(at).read_unaligned();
                    if to.is_null() {
                        return Err(Error::arg(3));
                    }
                    let info = DatProviderInfo::new(name, *major, *minor, *thread_safe);
                    to.write_unaligned(info);
                }
            }
            if all.len() > room {
                Err(Error::arg(1))
            } else {
                Ok(())
            }
        })
    }

    /// Writes whether two IAs are related for high availability (2.0's dat_registry_providers_related). dat.conf does not say so:
    /// `query` returns what the provider of the first name says about the second, `None` if it cannot be queried. An IA is not
    /// related to itself, which dat_ia_ha_related says too.
    ///
    /// # Safety
    /// The names are NULL or C strings; `answer` is NULL or valid.
    pub unsafe fn related(
        &'static self,
        one: *const c_char,
        other: *const c_char,
        answer: *mut u32,
        query: impl Fn(&str, &CStr) -> Option<bool>,
    ) -> u32 {
        self.guard_from_fork(|| {
            for (null, number) in [
                (one.is_null(), 1),
                (other.is_null(), 2),
                (answer.is_null(), 3),
            ] {
                if null {
                    return Err(Error::arg(number));
                }
            }
            // SAFETY: not NULL, so C strings by the contract of the function.
            let raw = unsafe { [CStr::from_ptr(one), CStr::from_ptr(other)] };
            let names = raw.map(|name| name.to_string_lossy().into_owned());
            let all = self.registry().list(self.version.major);
            if names
                .iter()
                .any(|name| !all.iter().any(|(known, ..)| known == name))
            {
                return Err(Error::new(
                    Kind::ProviderNotFound,
                    Subtype::NameNotRegistered,
                ));
            }
            let relation = if names[0] == names[1] {
                HA_FALSE
            } else {
                relation(query(&names[0], raw[1]), query(&names[1], raw[0]))
            };
            // SAFETY: not NULL, so valid by the contract of the function.
            unsafe { answer.write_unaligned(relation) };
            Ok(())
        })
    }
}

/// Combines the answers of two providers about each other. If only one answers, that answer counts.
fn relation(one: Option<bool>, other: Option<bool>) -> u32 {
    match (one, other) {
        (None, None) => HA_UNKNOWN,
        (Some(one), Some(other)) if one != other => HA_CONFLICTING,
        (Some(true), _) | (_, Some(true)) => HA_TRUE,
        _ => HA_FALSE,
    }
}

/// `DAT_HA_FALSE` of `DAT_HA_RELATIONSHIP`.
const HA_FALSE: u32 = 0;
/// `DAT_HA_TRUE`.
const HA_TRUE: u32 = 1;
/// `DAT_HA_UNKNOWN`.
const HA_UNKNOWN: u32 = 2;
/// `DAT_HA_CONFLICTING`: the two providers disagree.
const HA_CONFLICTING: u32 = 3;
