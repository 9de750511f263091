//! Interface adapters, and what is made on them.

use std::any::Any;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::sync::Arc;

use dat_core::error::{Error, Kind, Result};
use dat_core::flags::EvdFlags;

use super::{Cno, Ep, EpParts, Evd, Object, Psp, Pz, Rsp, call, kinds, owned};
use crate::boundary::limit;
use crate::intern::read_address;
use crate::types::{DAT_HANDLE_NULL, DatHandle, DatNamedAttr, DatOsWaitProxyAgent};
use crate::v2_0::convert::ep_attr_out;
use crate::v2_0::types::{DatIaAttr, DatProviderAttr};
use dat_core::attr::EpAttr;

kinds! {
    /// An open IA. Closed when the last object of it is gone.
    Ia;
}

/// What dat_ia_query tells, in Rust's types where C has pointers.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// As C has them.
    pub adapter: DatIaAttr,
    /// As C has them.
    pub provider: DatProviderAttr,
    /// Where peers connect to; `None` if the adapter has no address yet.
    pub address: Option<IpAddr>,
    /// The provider's named attributes, in order.
    pub named: Vec<(String, String)>,
}

impl Ia {
    /// Takes over an IA that was opened through its provider's `ia_open`. `keep` is dropped after it is closed.
    ///
    /// # Safety
    /// `handle` is an open IA of a 2.0 provider that may be called from several threads, nobody else closes it, and the
    /// provider's code stays loaded as long as `keep` exists.
    #[must_use]
    pub unsafe fn adopt(handle: DatHandle, keep: Box<dyn Any + Send + Sync>) -> Self {
        Self(Arc::new(Object {
            handle,
            free: |table, handle| match table.ia_close {
                // SAFETY: called once, by the object's drop. Whatever is left is in nobody's hands here.
                Some(close) => unsafe {
                    let graceful = close(handle, 1);
                    if graceful == 0 { 0 } else { close(handle, 0) }
                },
                None => Error::of(Kind::NotImplemented).code(),
            },
            _under: Vec::new(),
            keep: Some(keep),
        }))
    }

    /// dat_ia_query.
    ///
    /// # Errors
    /// The provider's.
    pub fn attributes(&self) -> Result<Attributes> {
        let mut adapter = MaybeUninit::<DatIaAttr>::zeroed();
        let mut provider = MaybeUninit::<DatProviderAttr>::zeroed();
        call!(
            self.0,
            ia_query(
                self.raw(),
                std::ptr::null_mut(),
                0x3f_ffff_ffff,
                adapter.as_mut_ptr(),
                0x7fff_ffff,
                provider.as_mut_ptr(),
            )
        )?;
        // SAFETY: all zeros are valid, and the provider wrote over them.
        let (adapter, provider) = unsafe { (adapter.assume_init(), provider.assume_init()) };
        Ok(Attributes {
            // SAFETY: NULL or a socket address of the provider's.
            address: unsafe { read_address(adapter.ia_address_ptr) },
            // SAFETY: the provider's array of as many as it says.
            named: unsafe {
                named(
                    provider.provider_specific_attr,
                    provider.num_provider_specific_attr,
                )
            },
            adapter,
            provider,
        })
    }

    /// dat_pz_create.
    ///
    /// # Errors
    /// The provider's.
    pub fn pz(&self) -> Result<Pz> {
        let mut pz = DAT_HANDLE_NULL;
        call!(self.0, pz_create(self.raw(), &raw mut pz))?;
        Ok(Pz(owned!(pz, pz_free, vec![self.0.clone()])))
    }

    /// dat_evd_create: room for `qlen` events of the streams `flags`.
    ///
    /// # Errors
    /// The provider's.
    pub fn evd(&self, qlen: u32, flags: EvdFlags, cno: Option<&Cno>) -> Result<Evd> {
        let mut evd = DAT_HANDLE_NULL;
        let cno_handle = cno.map_or(DAT_HANDLE_NULL, Cno::raw);
        call!(
            self.0,
            evd_create(
                self.raw(),
                limit(qlen),
                cno_handle,
                flags.bits(),
                &raw mut evd
            )
        )?;
        let mut under = vec![self.0.clone()];
        under.extend(cno.map(|c| c.0.clone()));
        Ok(Evd(owned!(evd, evd_free, under)))
    }

    /// dat_cno_create, without an agent.
    ///
    /// # Errors
    /// The provider's.
    pub fn cno(&self) -> Result<Cno> {
        let mut cno = DAT_HANDLE_NULL;
        let nobody = DatOsWaitProxyAgent {
            instance_data: std::ptr::null_mut(),
            proxy_agent_func: None,
        };
        call!(self.0, cno_create(self.raw(), nobody, &raw mut cno))?;
        Ok(Cno(owned!(cno, cno_free, vec![self.0.clone()])))
    }

    /// dat_psp_create, or dat_psp_create_any for `None`: requests to the qualifier are events of `evd`. Returns
    /// the qualifier.
    ///
    /// # Errors
    /// `DAT_CONN_QUAL_IN_USE` and the provider's others.
    pub fn psp(&self, conn_qual: Option<u64>, evd: &Evd) -> Result<(Psp, u64)> {
        let (mut psp, mut chosen) = (DAT_HANDLE_NULL, 0);
        match conn_qual {
            Some(wanted) => {
                chosen = wanted;
                call!(
                    self.0,
                    psp_create(self.raw(), wanted, evd.raw(), 0, &raw mut psp)
                )?;
            }
            None => call!(
                self.0,
                psp_create_any(self.raw(), &raw mut chosen, evd.raw(), 0, &raw mut psp)
            )?,
        }
        let under = vec![evd.0.clone(), self.0.clone()];
        Ok((Psp(owned!(psp, psp_free, under)), chosen))
    }

    /// dat_rsp_create: one request to the qualifier, for `ep`.
    ///
    /// # Errors
    /// `DAT_CONN_QUAL_IN_USE` and the provider's others.
    pub fn rsp(&self, conn_qual: u64, ep: &Ep, evd: &Evd) -> Result<Rsp> {
        let mut rsp = DAT_HANDLE_NULL;
        call!(
            self.0,
            rsp_create(self.raw(), conn_qual, ep.raw(), evd.raw(), &raw mut rsp)
        )?;
        let under = vec![ep.0.clone(), evd.0.clone(), self.0.clone()];
        Ok(Rsp(owned!(rsp, rsp_free, under)))
    }

    /// dat_ep_create, or dat_ep_create_with_srq; `attr` `None` asks for the provider's defaults.
    ///
    /// # Errors
    /// The provider's.
    pub fn ep(&self, parts: &EpParts<'_>, attr: Option<&EpAttr>) -> Result<Ep> {
        let mut ep = DAT_HANDLE_NULL;
        let attr = attr.map(ep_attr_out);
        let attr = attr.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let evd = |e: Option<&Evd>| e.map_or(DAT_HANDLE_NULL, Evd::raw);
        let (recv, request, connect) = (evd(parts.recv), evd(parts.request), evd(parts.connection));
        match parts.srq {
            None => call!(
                self.0,
                ep_create(
                    self.raw(),
                    parts.pz.raw(),
                    recv,
                    request,
                    connect,
                    attr,
                    &raw mut ep
                )
            )?,
            Some(srq) => call!(
                self.0,
                ep_create_with_srq(
                    self.raw(),
                    parts.pz.raw(),
                    recv,
                    request,
                    connect,
                    srq.raw(),
                    attr,
                    &raw mut ep
                )
            )?,
        }
        let mut under = vec![parts.pz.0.clone(), self.0.clone()];
        under.extend(
            [parts.recv, parts.request, parts.connection]
                .into_iter()
                .flatten()
                .map(|e| e.0.clone()),
        );
        under.extend(parts.srq.map(|s| s.0.clone()));
        Ok(Ep(owned!(ep, ep_free, under)))
    }
}

/// Named attributes as text.
///
/// # Safety
/// `at` is NULL or an array of `count` attributes whose pointers are NULL or C strings.
unsafe fn named(at: *const DatNamedAttr, count: i32) -> Vec<(String, String)> {
    let text = |pointer: *const std::ffi::c_char| {
        if pointer.is_null() {
            return String::new();
        }
        // SAFETY: not NULL, so a C string by the caller's promise.
        unsafe { CStr::from_ptr(pointer) }
            .to_string_lossy()
            .into_owned()
    };
    if at.is_null() {
        return Vec::new();
    }
    (0..usize::try_from(count).unwrap_or(0))
        .map(|i| {
            // SAFETY: within the array, by the caller's promise.
            let attribute = unsafe { at.add(i).read() };
            (text(attribute.name), text(attribute.value))
        })
        .collect()
}
