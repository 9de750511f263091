//! The states of an EVD and what each call may do in them: a pure table, without queues or locks.

use crate::error::{Error, Result, Subtype};

/// Who decides which completions wake a waiter: the endpoints that feed the EVD do (dat_evd_wait,
/// `DAT_EVD_STATE_CONFIG_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Config {
    /// All completions do, and a waiter may ask for many.
    #[default]
    Threshold,
    /// Those without `DAT_COMPLETION_UNSIGNALLED_FLAG` do.
    Notify,
    /// Those the peer sent with `DAT_COMPLETION_SOLICITED_WAIT_FLAG` do.
    Solicited,
}

/// State of an EVD.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// Events trigger the CNO.
    pub enabled: bool,
    /// dat_evd_wait is possible.
    pub waitable: bool,
    /// A thread is in dat_evd_wait and owns the EVD.
    pub waited: bool,
    /// See [`Config`].
    pub config: Config,
}

impl Default for State {
    /// As created: enabled, waitable, nobody waits.
    fn default() -> Self {
        Self {
            enabled: true,
            waitable: true,
            waited: false,
            config: Config::Threshold,
        }
    }
}

/// A call, or the end of one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// dat_evd_wait; `many`: with a threshold above 1.
    Wait {
        /// Threshold above 1.
        many: bool,
    },
    /// The waiter returns.
    WaitEnds,
    /// dat_evd_dequeue.
    Dequeue,
    /// dat_evd_enable.
    Enable,
    /// dat_evd_disable.
    Disable,
    /// dat_evd_set_unwaitable.
    SetUnwaitable,
    /// dat_evd_clear_unwaitable.
    ClearUnwaitable,
}

/// What the caller of [`State::step`] has to do besides taking the new state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Nothing.
    None,
    /// The waiter returns `DAT_INVALID_STATE` (`EVD_UNWAITABLE`).
    RefuseWaiter,
    /// From now on the CNO is told: what came meanwhile is looked for.
    Listen,
}

impl State {
    /// The next state.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE`: `EVD_WAITER` (somebody waits), `EVD_UNWAITABLE`, `EVD_CONFIG_NOTIFY` or
    /// `EVD_CONFIG_SOLICITED` (a threshold where endpoints decide what notifies).
    #[inline]
    pub fn step(self, call: Call) -> Result<(Self, Effect)> {
        let to = |next| Ok((next, Effect::None));
        match call {
            Call::Dequeue if self.waited => Err(Error::state(Subtype::InvalidStateEvdWaiter)),
            Call::Dequeue => to(self),
            Call::Wait { .. } if self.waited => Err(Error::state(Subtype::InvalidStateEvdWaiter)),
            Call::Wait { .. } if !self.waitable => {
                Err(Error::state(Subtype::InvalidStateEvdUnwaitable))
            }
            Call::Wait { many: true } if self.config == Config::Notify => {
                Err(Error::state(Subtype::InvalidStateEvdConfigNotify))
            }
            Call::Wait { many: true } if self.config == Config::Solicited => {
                Err(Error::state(Subtype::InvalidStateEvdConfigSolicited))
            }
            Call::Wait { .. } => to(Self {
                waited: true,
                ..self
            }),
            Call::WaitEnds => to(Self {
                waited: false,
                ..self
            }),
            Call::Enable => Ok((
                Self {
                    enabled: true,
                    ..self
                },
                if self.enabled {
                    Effect::None
                } else {
                    Effect::Listen
                },
            )),
            Call::Disable => to(Self {
                enabled: false,
                ..self
            }),
            Call::SetUnwaitable => Ok((
                Self {
                    waitable: false,
                    ..self
                },
                if self.waited {
                    Effect::RefuseWaiter
                } else {
                    Effect::None
                },
            )),
            Call::ClearUnwaitable => to(Self {
                waitable: true,
                ..self
            }),
        }
    }

    /// Whether an event triggers the CNO: a waiter owns the EVD, a disabled one tells nobody.
    #[must_use]
    pub fn tells_cno(self) -> bool {
        self.enabled && !self.waited
    }

    /// `DAT_EVD_STATE` bits (dat_evd_query).
    #[must_use]
    pub fn bits(self) -> u32 {
        let enabled = if self.enabled { 0x01 } else { 0x02 };
        let waitable = if self.waitable { 0x04 } else { 0x08 };
        let config = match self.config {
            Config::Notify => 0x10,
            Config::Solicited => 0x20,
            Config::Threshold => 0x30,
        };
        enabled | waitable | config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: [Call; 8] = [
        Call::Wait { many: false },
        Call::Wait { many: true },
        Call::WaitEnds,
        Call::Dequeue,
        Call::Enable,
        Call::Disable,
        Call::SetUnwaitable,
        Call::ClearUnwaitable,
    ];

    fn states() -> impl Iterator<Item = State> {
        (0..24).map(|n| State {
            enabled: n & 1 == 0,
            waitable: n & 2 == 0,
            waited: n & 4 == 0,
            config: [Config::Threshold, Config::Notify, Config::Solicited][n / 8],
        })
    }

    /// The pages in one line per refusal: the first that applies.
    fn refusal(state: State, call: Call) -> Option<Subtype> {
        let rules = [
            (
                state.waited && matches!(call, Call::Dequeue | Call::Wait { .. }),
                Subtype::InvalidStateEvdWaiter,
            ),
            (
                !state.waitable && matches!(call, Call::Wait { .. }),
                Subtype::InvalidStateEvdUnwaitable,
            ),
            (
                state.config == Config::Notify && call == Call::Wait { many: true },
                Subtype::InvalidStateEvdConfigNotify,
            ),
            (
                state.config == Config::Solicited && call == Call::Wait { many: true },
                Subtype::InvalidStateEvdConfigSolicited,
            ),
        ];
        rules.into_iter().find(|r| r.0).map(|r| r.1)
    }

    #[test]
    fn every_state_answers_every_call_as_its_page_says() {
        let mut cells = 0;
        for state in states() {
            for call in CALLS {
                cells += 1;
                let result = state.step(call);
                if let Some(subtype) = refusal(state, call) {
                    assert_eq!(result, Err(Error::state(subtype)), "{state:?} {call:?}");
                    continue;
                }
                let mut expected = state;
                let mut effect = Effect::None;
                match call {
                    Call::Wait { .. } => expected.waited = true,
                    Call::WaitEnds => expected.waited = false,
                    Call::Dequeue => {}
                    Call::Enable => {
                        expected.enabled = true;
                        if !state.enabled {
                            effect = Effect::Listen;
                        }
                    }
                    Call::Disable => expected.enabled = false,
                    Call::SetUnwaitable => {
                        expected.waitable = false;
                        if state.waited {
                            effect = Effect::RefuseWaiter;
                        }
                    }
                    Call::ClearUnwaitable => expected.waitable = true,
                }
                assert_eq!(result, Ok((expected, effect)), "{state:?} {call:?}");
            }
        }
        assert_eq!(cells, 24 * 8);
    }

    #[test]
    fn a_cno_is_told_only_by_an_enabled_evd_that_nobody_waits_on() {
        for state in states() {
            assert_eq!(state.tells_cno(), state.enabled && !state.waited);
        }
    }

    #[test]
    fn state_bits_are_those_of_udat_h() {
        assert_eq!(State::default().bits(), 0x35);
        for state in states() {
            let bits = state.bits();
            assert_eq!(bits & 0x3, if state.enabled { 1 } else { 2 });
            assert_eq!(bits & 0xc, if state.waitable { 4 } else { 8 });
        }
    }
}
