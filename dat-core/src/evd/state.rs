//! State machine of an EVD: a pure table of states and calls, without queues or locks.

use crate::error::{Error, Result, Subtype};

/// Configuration: selects the completions that wake a waiter. The endpoints that feed the EVD decide it
/// (dat_evd_wait, `DAT_EVD_STATE_CONFIG_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Config {
    /// All completions; a waiter may set a threshold.
    #[default]
    Threshold,
    /// Completions without `DAT_COMPLETION_UNSIGNALLED_FLAG`.
    Notify,
    /// Completions that the peer sent with `DAT_COMPLETION_SOLICITED_WAIT_FLAG`.
    Solicited,
}

/// State of an EVD.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// True if events trigger the CNO.
    pub enabled: bool,
    /// True if dat_evd_wait is allowed.
    pub waitable: bool,
    /// True if a thread is in dat_evd_wait and owns the EVD.
    pub waited: bool,
    /// Selection of the completions that wake a waiter.
    pub config: Config,
}

impl Default for State {
    /// Returns the state of a new EVD: enabled, waitable, without a waiter.
    fn default() -> Self {
        Self {
            enabled: true,
            waitable: true,
            waited: false,
            config: Config::Threshold,
        }
    }
}

/// Call on an EVD, or change of its streams.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// dat_evd_wait.
    Wait {
        /// True if the threshold is above 1.
        many: bool,
    },
    /// The waiter returns.
    WaiterReturned,
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
    /// The streams changed, and the completion flags of their endpoints lead to this configuration.
    Streams(Config),
    /// The EVD is created or freed.
    Reset,
}

/// Action that the caller of [`State::step`] must take.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// No action.
    None,
    /// The waiter returns `DAT_INVALID_STATE` (`EVD_UNWAITABLE`).
    RefuseWaiter,
    /// Arm the completion queue for the CNO and look for events that came meanwhile.
    ArmCno,
}

impl State {
    /// Returns the next state and the action.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE`: `EVD_WAITER` (a thread waits), `EVD_UNWAITABLE`, `EVD_CONFIG_NOTIFY` or
    /// `EVD_CONFIG_SOLICITED` (a threshold where endpoints decide what notifies).
    #[inline]
    pub fn step(self, call: Input) -> Result<(Self, Effect)> {
        let to = |next| Ok((next, Effect::None));
        match call {
            Input::Dequeue if self.waited => Err(Error::state(Subtype::InvalidStateEvdWaiter)),
            Input::Dequeue => to(self),
            Input::Wait { .. } if self.waited => Err(Error::state(Subtype::InvalidStateEvdWaiter)),
            Input::Wait { .. } if !self.waitable => {
                Err(Error::state(Subtype::InvalidStateEvdUnwaitable))
            }
            Input::Wait { many: true } if self.config == Config::Notify => {
                Err(Error::state(Subtype::InvalidStateEvdConfigNotify))
            }
            Input::Wait { many: true } if self.config == Config::Solicited => {
                Err(Error::state(Subtype::InvalidStateEvdConfigSolicited))
            }
            Input::Wait { .. } => to(Self {
                waited: true,
                ..self
            }),
            Input::WaiterReturned => to(Self {
                waited: false,
                ..self
            }),
            Input::Enable => Ok((
                Self {
                    enabled: true,
                    ..self
                },
                if self.enabled {
                    Effect::None
                } else {
                    Effect::ArmCno
                },
            )),
            Input::Disable => to(Self {
                enabled: false,
                ..self
            }),
            Input::SetUnwaitable => Ok((
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
            Input::ClearUnwaitable => to(Self {
                waitable: true,
                ..self
            }),
            Input::Streams(config) => to(Self { config, ..self }),
            Input::Reset => to(Self::default()),
        }
    }

    /// Returns true if an event triggers the CNO: the EVD is enabled and no thread waits.
    #[must_use]
    pub fn triggers_cno(self) -> bool {
        self.enabled && !self.waited
    }

    /// Returns the `DAT_EVD_STATE` bits (dat_evd_query).
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

/// State of an EVD. [`StateCell::apply`] is the only writer, and stores only what [`State::step`] returns.
#[derive(Debug)]
pub(super) struct StateCell(State);

impl StateCell {
    /// Returns the cell of an EVD that was never created.
    pub(super) fn new() -> Self {
        Self(State::default())
    }

    /// Returns the state.
    #[inline(always)]
    pub(super) fn get(&self) -> State {
        self.0
    }

    /// Returns an error if the state forbids `input`.
    ///
    /// # Errors
    /// Those of [`State::step`].
    #[inline(always)]
    pub(super) fn check(&self, input: Input) -> Result<()> {
        self.0.step(input).map(drop)
    }

    /// Takes the transition that `input` makes.
    ///
    /// # Errors
    /// Those of [`State::step`]; the state does not change then.
    pub(super) fn apply(&mut self, input: Input) -> Result<Effect> {
        let (next, effect) = self.0.step(input)?;
        self.0 = next;
        Ok(effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: [Input; 12] = [
        Input::Wait { many: false },
        Input::Wait { many: true },
        Input::WaiterReturned,
        Input::Dequeue,
        Input::Enable,
        Input::Disable,
        Input::SetUnwaitable,
        Input::ClearUnwaitable,
        Input::Streams(Config::Threshold),
        Input::Streams(Config::Notify),
        Input::Streams(Config::Solicited),
        Input::Reset,
    ];

    fn states() -> impl Iterator<Item = State> {
        (0..24).map(|n| State {
            enabled: n & 1 == 0,
            waitable: n & 2 == 0,
            waited: n & 4 == 0,
            config: [Config::Threshold, Config::Notify, Config::Solicited][n / 8],
        })
    }

    /// The manual pages' refusals, one a line; the first that applies counts.
    fn refusal(state: State, call: Input) -> Option<Subtype> {
        let rules = [
            (
                state.waited && matches!(call, Input::Dequeue | Input::Wait { .. }),
                Subtype::InvalidStateEvdWaiter,
            ),
            (
                !state.waitable && matches!(call, Input::Wait { .. }),
                Subtype::InvalidStateEvdUnwaitable,
            ),
            (
                state.config == Config::Notify && call == Input::Wait { many: true },
                Subtype::InvalidStateEvdConfigNotify,
            ),
            (
                state.config == Config::Solicited && call == Input::Wait { many: true },
                Subtype::InvalidStateEvdConfigSolicited,
            ),
        ];
        rules.into_iter().find(|r| r.0).map(|r| r.1)
    }

    #[test]
    fn every_state_answers_every_call_as_its_page_says() {
        let mut cells = 0;
        for state in states() {
            for call in INPUTS {
                cells += 1;
                let result = state.step(call);
                if let Some(subtype) = refusal(state, call) {
                    assert_eq!(result, Err(Error::state(subtype)), "{state:?} {call:?}");
                    continue;
                }
                let mut expected = state;
                let mut effect = Effect::None;
                match call {
                    Input::Wait { .. } => expected.waited = true,
                    Input::WaiterReturned => expected.waited = false,
                    Input::Dequeue => {}
                    Input::Enable => {
                        expected.enabled = true;
                        if !state.enabled {
                            effect = Effect::ArmCno;
                        }
                    }
                    Input::Disable => expected.enabled = false,
                    Input::SetUnwaitable => {
                        expected.waitable = false;
                        if state.waited {
                            effect = Effect::RefuseWaiter;
                        }
                    }
                    Input::ClearUnwaitable => expected.waitable = true,
                    Input::Streams(config) => expected.config = config,
                    Input::Reset => expected = State::default(),
                }
                assert_eq!(result, Ok((expected, effect)), "{state:?} {call:?}");
                let mut cell = StateCell(state);
                assert_eq!(cell.check(call), Ok(()));
                assert_eq!(cell.get(), state, "a check changes nothing");
                assert_eq!(cell.apply(call), Ok(effect));
                assert_eq!(cell.get(), expected);
            }
        }
        assert_eq!(cells, 24 * 12);
    }

    #[test]
    fn only_an_enabled_evd_without_a_waiter_triggers_its_cno() {
        for state in states() {
            assert_eq!(state.triggers_cno(), state.enabled && !state.waited);
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
