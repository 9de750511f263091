//! Chooses the engine at each open.

use dat_abi::export::{OpenRequest, OpenedIa, Provider};
use dat_abi::types::DatHandle;
use dat_core::error::{Error, Kind, Result};
use dat_core::ia_params::{IaParams, IaParamsError};
use dat_verbs::Verbs;
use softrxe_engine::UserEngine;

use crate::kernel;

/// The provider.
#[derive(Debug)]
pub struct SoftRxe;

/// The setting that chooses the engine.
const ENGINE: &str = "engine";
/// Values of [`ENGINE`].
const ENGINES: &[&str] = &["kernel", "user", "auto"];

/// The values of [`ENGINE`], for `dat_abi::export_provider!`.
pub(crate) const SETTINGS: &str = "engine one-of kernel user auto\n";

/// Which settings the engines and each other exclude, for `dat_abi::export_provider!`.
pub(crate) const RELATIONS: &str = "\
keepalive only engine user auto
pcap only engine user auto
holder only engine user auto
near only engine user auto
ring only engine user auto
lanes only engine user auto
cm only engine kernel auto
gid_index only engine kernel auto
inline only engine kernel auto
tos only engine kernel auto
resolve_timeout only engine kernel auto
resolve_retry only engine kernel auto
near idle pcap
lanes idle pcap
";

/// The implementation of Soft-RoCE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Engine {
    /// rdma_rxe.
    Kernel,
    /// `softrxe_engine`, in this process.
    User,
}

impl Engine {
    /// Returns the settings of this engine.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Kernel => dat_verbs::KEYS,
            Self::User => softrxe_engine::KEYS,
        }
    }

    /// Returns `params` for this engine. With `engine=auto` they may contain settings of the other engine, which are left out.
    fn settings(self, params: &IaParams) -> IaParams {
        let mut params = params.clone();
        let keys = self.keys();
        params
            .settings
            .retain(|key, _| keys.contains(&key.as_str()));
        params
    }
}

/// Returns the engine that `params` choose, or `None` for `auto`. Checks that all settings are ones of that engine, or of either.
fn chosen(params: &IaParams) -> Result<Option<Engine>, IaParamsError> {
    let engine = match params.word(ENGINE, ENGINES)? {
        Some("kernel") => Some(Engine::Kernel),
        Some("user") => Some(Engine::User),
        _ => None,
    };
    let mut known = vec![ENGINE];
    for one in [Engine::Kernel, Engine::User] {
        if engine.is_none_or(|chosen| chosen == one) {
            let more = one.keys().iter().filter(|key| !known.contains(key));
            known.extend(more.collect::<Vec<_>>());
        }
    }
    params.known(&known)?;
    Ok(engine)
}

/// Returns the device field for the kernel. An empty one means the netdev of the default route.
fn device(params: &IaParams) -> String {
    match softrxe_engine::default_address() {
        Some(address) if params.device.is_empty() => address.to_string(),
        _ => params.device.clone(),
    }
}

impl Provider for SoftRxe {
    type Transport = Verbs;

    fn owns(handle: DatHandle) -> bool {
        dat_abi::export::owns::<Verbs>(handle) || dat_abi::export::owns::<UserEngine>(handle)
    }

    fn open(request: &OpenRequest<'_>) -> Result<OpenedIa> {
        let name = request.name;
        let chosen = chosen(request.params).map_err(|error| {
            tracing::error!("{name}: {error}");
            Error::of(Kind::InvalidParameter)
        })?;
        let mut params = request.params.clone();
        if chosen != Some(Engine::User) {
            params.device = device(&params);
            match kernel::prepare(&params.device) {
                Ok(()) => {
                    let params = Engine::Kernel.settings(&params);
                    return request.with_params(&params).with::<Verbs>();
                }
                Err(error) if chosen.is_some() => {
                    tracing::error!("{name}: {error}");
                    return Err(error.code());
                }
                Err(error) => {
                    tracing::info!("{name}: uses the engine in user space, because {error}");
                }
            }
        }
        let params = Engine::User.settings(&params);
        request.with_params(&params).with::<UserEngine>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(text: &str) -> Result<Option<Engine>, String> {
        chosen(&IaParams::parse(text).unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_engine_is_chosen_or_left_open() {
        for text in [
            "v0 0 inline=0 pcap=/tmp/x mtu=1024",
            "v0 0 engine=auto tos=1",
        ] {
            assert_eq!(choose(text), Ok(None), "{text}");
        }
        assert_eq!(choose("v0 0 engine=kernel tos=1"), Ok(Some(Engine::Kernel)));
        assert_eq!(choose("lo 0 engine=user pcap=x"), Ok(Some(Engine::User)));
    }

    #[test]
    fn the_relations_are_those_of_the_engines_keys() {
        let only = |of: Engine, other: Engine, name: &str| {
            let own = of.keys().iter().filter(|key| !other.keys().contains(key));
            own.map(|key| format!("{key} only {ENGINE} {name} auto"))
                .collect::<Vec<_>>()
        };
        let mut wants = only(Engine::User, Engine::Kernel, "user");
        wants.extend(only(Engine::Kernel, Engine::User, "kernel"));
        let mut has: Vec<&str> = RELATIONS
            .lines()
            .filter(|l| !l.contains(" idle "))
            .collect();
        wants.sort();
        has.sort_unstable();
        assert_eq!(has, wants);
    }

    #[test]
    fn an_engine_gets_its_own_settings() {
        let params = IaParams::parse("v0 1 engine=auto mtu=1024 inline=0 pcap=x").unwrap();
        let kernel = IaParams::parse("v0 1 mtu=1024 inline=0").unwrap();
        assert_eq!(Engine::Kernel.settings(&params), kernel);
        let user = IaParams::parse("v0 1 mtu=1024 pcap=x").unwrap();
        assert_eq!(Engine::User.settings(&params), user);
    }

    #[test]
    fn unknown_words_are_refused_with_a_list_of_the_known_ones() {
        for (text, said) in [
            ("v0 0 engine=steam", "kernel, user, auto"),
            ("v0 0 engine=kernel pcap=x", "\"pcap\"; known ones: engine,"),
            (
                "v0 0 engine=user tos=1",
                "\"tos\"; known ones: engine, mtu, retry",
            ),
            ("v0 0 colour=red", ", pcap"),
        ] {
            let error = choose(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
