//! dat_ia_open, dat_ia_query, dat_ia_close, dat_set_consumer_context.

use dat_core::error::Kind;

use super::statements;
use crate::dat::{self, Dat};
use crate::fixture::{ABRUPT, GRACEFUL, Side, expect_ok};
use crate::verdict::{Check, holds, ok, refused, same};

statements! {
    "dat_ia_open": "The same adapter can be opened more than once; each open is an IA of its own." => twice;
    "dat_ia_open": "An unknown name is DAT_PROVIDER_NOT_FOUND." => unknown;
    "dat_ia_query": "The query returns an address, names, and limits above 0." => query;
    "dat_ia_close": "A graceful close with objects left is DAT_INVALID_STATE, and closes nothing." => graceful;
    "dat_ia_close": "An abrupt close destroys all objects of the IA." => abrupt;
    "dat_ia_close": "A closed IA fails in any later operation." => closed;
    "dat_ia_close": "Invalid flags are DAT_INVALID_PARAMETER." => flags;
    "dat_set_consumer_context": "Each object keeps a context." => context;
    "dat_get_consumer_context": "It is 0 until one was set." => no_context;
}

fn twice(dat: &Dat) -> Check {
    let (one, other) = (Side::open(dat)?, Side::open(dat)?);
    holds(
        one.ia != other.ia,
        "dat_ia_open returned one handle for two opens; expected two handles",
    )?;
    drop(one);
    expect_ok(dat.ia_query(other.ia), "dat_ia_query of the other open")?;
    Ok(())
}

fn unknown(dat: &Dat) -> Check {
    let code = dat.ia_open_as("no such adapter").err().unwrap_or(0);
    refused(code, Kind::ProviderNotFound, "dat_ia_open")
}

fn query(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (attr, provider) = expect_ok(dat.ia_query(side.ia), "dat_ia_query")?;
    holds(!attr.ia_address_ptr.is_null(), "no address")?;
    holds(
        !dat::text(&attr.adapter_name).is_empty(),
        "dat_ia_query returned an empty adapter name",
    )?;
    holds(
        !dat::text(&provider.provider_name).is_empty(),
        "dat_ia_query returned an empty provider name",
    )?;
    let limits = [
        attr.max_eps,
        attr.max_dto_per_ep,
        attr.max_evds,
        attr.max_evd_qlen,
        attr.max_iov_segments_per_dto,
        attr.max_lmrs,
        attr.max_pzs,
    ];
    holds(limits.iter().all(|n| *n > 0), "a limit of 0")?;
    let version = (provider.dapl_version_major, provider.dapl_version_minor);
    same(&version, &dat.api().version(), "DAPL version")
}

fn graceful(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let code = dat.ia_close(side.ia, GRACEFUL);
    refused(code, Kind::InvalidState, "dat_ia_close, graceful")?;
    side.ep()?;
    let (ia, _) = expect_ok(dat.ia_open(), "dat_ia_open")?;
    ok(dat.ia_close(ia, GRACEFUL), "dat_ia_close of an unused IA")
}

fn abrupt(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    let (psp, _) = side.listen()?;
    ok(dat.ia_close(side.ia, ABRUPT), "dat_ia_close")?;
    let codes = [
        dat.ep_free(ep),
        dat.psp_free(psp),
        dat.pz_free(side.pz),
        dat.evd_free(side.recv),
        dat.evd_free(side.async_evd),
    ];
    for code in codes {
        refused(code, Kind::InvalidHandle, "free after dat_ia_close")?;
    }
    Ok(())
}

fn closed(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    ok(dat.ia_close(side.ia, ABRUPT), "dat_ia_close")?;
    let codes = [
        dat.ia_close(side.ia, ABRUPT),
        dat.ia_query(side.ia).err().unwrap_or(0),
        dat.pz_create(side.ia).err().unwrap_or(0),
    ];
    for code in codes {
        refused(code, Kind::InvalidHandle, "a call with a closed IA")?;
    }
    Ok(())
}

fn flags(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let code = dat.ia_close(side.ia, 7);
    refused(code, Kind::InvalidParameter, "dat_ia_close(7)")
}

fn context(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let objects = [side.ia, side.pz, side.recv, side.ep()?];
    for (object, context) in objects.iter().zip(0xfeed..) {
        let set = dat.set_consumer_context(*object, context);
        ok(set, "dat_set_consumer_context")?;
    }
    for (object, context) in objects.iter().zip(0xfeed..) {
        let seen = dat.get_consumer_context(*object);
        same(&seen, &Ok(context), "context")?;
    }
    Ok(())
}

fn no_context(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    for object in [side.ia, side.pz, side.recv, side.ep()?] {
        same(&dat.get_consumer_context(object), &Ok(0), "context")?;
    }
    Ok(())
}
