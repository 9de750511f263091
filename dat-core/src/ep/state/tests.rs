use super::*;

#[test]
fn the_cell_of_a_new_endpoint_is_unconnected_and_changes_by_steps_only() {
    for input in Input::ALL {
        let cell = StateCell::default();
        assert!(cell.is(EpState::Unconnected));
        assert_eq!(cell.preview(input), step(EpState::Unconnected, input));
        assert!(cell.is(EpState::Unconnected), "a preview changes nothing");
        match cell.apply(input) {
            Ok(step) => assert_eq!(cell.get(), step.next),
            Err(_) => assert!(cell.is(EpState::Unconnected), "{input:?} was refused"),
        }
    }
}

/// The manual pages as a table. Each row lists the inputs that have an effect: input, next state, event, action.
/// A call that is not listed is refused with the state's own subtype; any other input is ignored.
const TABLE: &[(&str, Subtype, &str)] = &[
    (
        "UNCONNECTED",
        Subtype::InvalidStateEpUnconnected,
        "Connect>ActiveConnectionPending Reserve>Reserved Offer>TentativeConnectionPending \
             Accept>CompletionPending Reset>Unconnected Free>Unconnected \
             Resolve>Unconnected AcceptDatagram>Unconnected Resolved>Connected",
    ),
    (
        "RESERVED",
        Subtype::InvalidStateEpReserved,
        "Unreserve>Unconnected RequestArrived>PassiveConnectionPending",
    ),
    (
        "PASSIVE_CONNECTION_PENDING",
        Subtype::InvalidStateEpPassconnpending,
        "AcceptOwn>CompletionPending Reject>Unconnected AcceptOwnDatagram>Unconnected \
             Unannounced>Reserved",
    ),
    (
        "ACTIVE_CONNECTION_PENDING",
        Subtype::InvalidStateEpActconnpending,
        "Refused>Unconnected DisconnectAbrupt>Disconnected!Disconnected+Teardown \
             DisconnectGraceful>Disconnected!Disconnected+Teardown Free>Unconnected+Teardown \
             Established>Connected!Established PeerRejected>Disconnected!PeerRejected+Teardown \
             NonPeerRejected>Disconnected!NonPeerRejected+Teardown \
             Unreachable>Disconnected!Unreachable+Teardown TimedOut>Disconnected!TimedOut+Teardown \
             AcceptError>Disconnected!NonPeerRejected+Teardown \
             Disconnected>Disconnected!NonPeerRejected+Teardown \
             Broken>Disconnected!NonPeerRejected+Teardown",
    ),
    (
        "TENTATIVE_CONNECTION_PENDING",
        Subtype::InvalidStateEpTentconnpending,
        "AcceptOwn>CompletionPending Reject>Unconnected AcceptOwnDatagram>Unconnected",
    ),
    (
        "CONNECTED",
        Subtype::InvalidStateEpConnected,
        "DisconnectAbrupt>Disconnected!Disconnected+Teardown \
             DisconnectGraceful>DisconnectPending+AwaitLastRequest Free>Unconnected+Teardown \
             Disconnected>Disconnected!Disconnected+Teardown Broken>Disconnected!Broken+Teardown \
             AcceptError>Disconnected!Broken+Teardown Resolve>Connected AcceptDatagram>Connected",
    ),
    (
        "DISCONNECT_PENDING",
        Subtype::InvalidStateEpDiscpending,
        "DisconnectAbrupt>Disconnected!Disconnected+Teardown DisconnectGraceful>DisconnectPending \
             Drained>Disconnected!Disconnected+Teardown Free>Unconnected+Teardown \
             Disconnected>Disconnected!Disconnected+Teardown Broken>Disconnected!Disconnected+Teardown \
             AcceptError>Disconnected!Disconnected+Teardown",
    ),
    (
        "DISCONNECTED",
        Subtype::InvalidStateEpDisconnected,
        "DisconnectAbrupt>Disconnected DisconnectGraceful>Disconnected \
             Reset>Unconnected+ResetQueuePair Free>Unconnected",
    ),
    (
        "COMPLETION_PENDING",
        Subtype::InvalidStateEpComplpending,
        "Refused>Unconnected DisconnectAbrupt>Disconnected!Disconnected+Teardown \
             DisconnectGraceful>Disconnected!Disconnected+Teardown Free>Unconnected+Teardown \
             Established>Connected!Established MessageReceived>Connected!Established \
             PeerRejected>Disconnected!AcceptCompletionError+Teardown \
             NonPeerRejected>Disconnected!AcceptCompletionError+Teardown \
             Unreachable>Disconnected!AcceptCompletionError+Teardown \
             TimedOut>Disconnected!AcceptCompletionError+Teardown \
             AcceptError>Disconnected!AcceptCompletionError+Teardown \
             Disconnected>Disconnected!AcceptCompletionError+Teardown \
             Broken>Disconnected!AcceptCompletionError+Teardown",
    ),
];

/// Inputs that come from a call of the consumer, which can be refused.
const CALLS: &str = " Connect Reserve Offer Accept AcceptOwn DisconnectAbrupt DisconnectGraceful Reset Free \
         Resolve AcceptDatagram AcceptOwnDatagram ";

fn cell(step: &Step) -> String {
    let event = step.event.map_or_else(String::new, |e| format!("!{e:?}"));
    let effect = match step.effect {
        Effect::None => String::new(),
        effect => format!("+{effect:?}"),
    };
    format!(">{:?}{event}{effect}", step.next)
}

#[test]
fn every_cell_is_as_the_pages_say() {
    let mut cells = 0;
    for (state, (name, subtype, row)) in EpState::ALL.into_iter().zip(TABLE) {
        assert_eq!(state.name(), format!("DAT_EP_STATE_{name}"));
        for input in Input::ALL {
            let input_name = match input {
                Input::Transport(outcome) => format!("{outcome:?}"),
                call => format!("{call:?}"),
            };
            let expected = row
                .split_whitespace()
                .find_map(|c| c.strip_prefix(&input_name).filter(|c| c.starts_with('>')))
                // The same in each state.
                .or((input == Input::Destroy).then_some(">Unconnected+Teardown"));
            let got = step(state, input);
            match (expected, got) {
                (Some(expected), Ok(step)) => {
                    assert_eq!(cell(&step), expected, "{state} x {input_name}");
                }
                (None, got) if CALLS.contains(&format!(" {input_name} ")) => {
                    assert_eq!(got, Err(Error::state(*subtype)), "{state} x {input_name}");
                }
                (None, got) => {
                    assert_eq!(got, Ok(to(state)), "{state} x {input_name}");
                }
                (Some(_), Err(error)) => panic!("{state} x {input_name}: {error}"),
            }
            cells += 1;
        }
    }
    assert_eq!(cells, EpState::ALL.len() * Input::ALL.len());
}

#[test]
fn no_event_without_a_transition() {
    for state in EpState::ALL {
        for input in Input::ALL {
            if let Ok(step) = step(state, input) {
                assert!(
                    step.event.is_none() || step.next != state,
                    "{state} x {input:?}"
                );
            }
        }
    }
}

#[test]
fn numbers_are_those_of_dat_h() {
    for state in EpState::ALL {
        assert_eq!(EpState::from_number(state as u32), Some(state));
    }
    assert_eq!(EpState::Connected as u32, 9);
    assert_eq!(EpState::CompletionPending as u32, 12);
    assert_eq!(EpState::from_number(1), None);
}

#[test]
fn an_attempt_is_active_or_an_answer() {
    let attempts: Vec<_> = EpState::ALL
        .into_iter()
        .filter(|s| s.is_attempt())
        .collect();
    let expected = [EpState::ActiveConnectionPending, EpState::CompletionPending];
    assert_eq!(attempts, expected);
}
