//! Chooses the engine at each open.

use dat_abi::export::{OpenRequest, OpenedIa, Provider};
use dat_abi::types::DatHandle;
use dat_core::error::{Error, Kind, Result};
use dat_core::ia_params::{IaParams, IaParamsError};
use dat_verbs::Verbs;

use crate::kernel;
use crate::user::UserEngine;

/// The provider.
#[derive(Debug)]
pub struct SoftRxe;

/// The setting that chooses.
const ENGINE: &str = "engine";
/// Its values.
const ENGINES: &[&str] = &["kernel", "user", "auto"];

/// What moves the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Engine {
    /// rdma_rxe.
    Kernel,
    /// This process.
    User,
}

/// The engine that `params` ask for, and the settings that are left for it.
fn engine(params: &IaParams) -> Result<(Engine, IaParams), IaParamsError> {
    let engine = match params.word(ENGINE, ENGINES)? {
        Some("user") => Engine::User,
        _ => Engine::Kernel,
    };
    let mut rest = params.clone();
    rest.settings.remove(ENGINE);
    if engine == Engine::Kernel {
        let known: Vec<&str> = std::iter::once(ENGINE)
            .chain(dat_verbs::KEYS.iter().copied())
            .collect();
        rest.known(&known)?;
    }
    Ok((engine, rest))
}

impl Provider for SoftRxe {
    type Transport = Verbs;

    fn owns(handle: DatHandle) -> bool {
        dat_abi::export::owns::<Verbs>(handle) || dat_abi::export::owns::<UserEngine>(handle)
    }

    fn open(request: &OpenRequest<'_>) -> Result<OpenedIa> {
        let name = request.name;
        let (engine, params) = engine(request.params).map_err(|error| {
            tracing::error!("{name}: {error}");
            Error::of(Kind::InvalidParameter)
        })?;
        match engine {
            Engine::Kernel => {
                kernel::prepare(&params.device).map_err(|error| {
                    tracing::error!("{name}: {error}");
                    error.code()
                })?;
                request.with_params(&params).with::<Verbs>()
            }
            Engine::User => request.with_params(&params).with::<UserEngine>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(text: &str) -> Result<(Engine, IaParams), String> {
        engine(&IaParams::parse(text).unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_kernel_is_the_usual_engine_and_does_not_see_the_setting() {
        for text in [
            "v0 0 mtu=1024",
            "v0 0 engine=auto mtu=1024",
            "v0 0 engine=kernel mtu=1024",
        ] {
            let (engine, rest) = choose(text).unwrap();
            assert_eq!(engine, Engine::Kernel, "{text}");
            assert_eq!(rest, IaParams::parse("v0 0 mtu=1024").unwrap());
        }
        assert_eq!(choose("v0 0 engine=user").unwrap().0, Engine::User);
    }

    #[test]
    fn unknown_words_are_refused_with_the_known_ones() {
        assert!(
            choose("v0 0 engine=steam")
                .unwrap_err()
                .contains("kernel, user, auto")
        );
        let text = choose("v0 0 colour=red").unwrap_err();
        assert!(text.contains("engine, inline, mtu"), "{text}");
    }
}
