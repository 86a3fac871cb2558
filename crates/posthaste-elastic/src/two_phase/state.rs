//! The states of a transaction and the transitions between them. Transitions only go forward.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of a transaction, by the six names of the published protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Recorded; no process has begun it.
    Created,
    /// Documents are being held for it. It may still commit or roll back.
    Pending,
    /// Decided: all documents held it, and will settle it.
    Committed,
    /// Every document has settled it, and none holds it.
    Finished,
    /// Decided: no document will settle it.
    Terminating,
    /// No document has settled it, and none holds it.
    RolledBack,
}

/// An event of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A process began it.
    Begun,
    /// All of its documents hold it.
    Held,
    /// All of its documents have settled it.
    Settled,
    /// A process abandoned it.
    Abandoned,
    /// All of its documents have undone it.
    Undone,
}

/// An event that cannot happen in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a transaction that is {state} cannot be {event:?}")]
pub struct IllegalTransition {
    /// The state of the transaction.
    pub state: State,
    /// The event that is impossible in this state.
    pub event: Event,
}

impl State {
    /// All states.
    pub const ALL: [Self; 6] = [
        Self::Created,
        Self::Pending,
        Self::Committed,
        Self::Finished,
        Self::Terminating,
        Self::RolledBack,
    ];

    /// Returns the state after an event. These are all transitions.
    ///
    /// ```
    /// use posthaste_elastic::two_phase::{Event, State};
    /// assert_eq!(State::Pending.next(Event::Held), Ok(State::Committed));
    /// assert!(State::Committed.next(Event::Abandoned).is_err());
    /// ```
    pub fn next(self, event: Event) -> Result<Self, IllegalTransition> {
        match (self, event) {
            (Self::Created, Event::Begun) => Ok(Self::Pending),
            // No document holds it: only a process that saw it pending may hold.
            (Self::Created, Event::Abandoned) => Ok(Self::RolledBack),
            (Self::Pending, Event::Held) => Ok(Self::Committed),
            (Self::Pending, Event::Abandoned) => Ok(Self::Terminating),
            (Self::Committed, Event::Settled) => Ok(Self::Finished),
            (Self::Terminating, Event::Undone) => Ok(Self::RolledBack),
            (state, event) => Err(IllegalTransition { state, event }),
        }
    }

    /// Whether no event is possible in this state.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Finished | Self::RolledBack)
    }
}

/// The name that stored transactions contain.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Created => "created",
            Self::Pending => "pending",
            Self::Committed => "committed",
            Self::Finished => "finished",
            Self::Terminating => "terminating",
            Self::RolledBack => "rolled-back",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 5] = [
        Event::Begun,
        Event::Held,
        Event::Settled,
        Event::Abandoned,
        Event::Undone,
    ];

    #[test]
    fn transactions_only_advance_and_committed_ones_never_abort() {
        let ways: Vec<String> = State::ALL
            .into_iter()
            .flat_map(|state| EVENTS.map(|event| (state, state.next(event))))
            .filter_map(|(state, next)| Some(format!("{state} -> {}", next.ok()?)))
            .collect();
        assert_eq!(
            ways,
            [
                "created -> pending",
                "created -> rolled-back",
                "pending -> committed",
                "pending -> terminating",
                "committed -> finished",
                "terminating -> rolled-back",
            ]
        );
    }

    #[test]
    fn states_display_as_they_are_serialized() {
        for state in State::ALL {
            let spelled = serde_json::to_value(state).unwrap();
            assert_eq!(spelled, state.to_string());
        }
    }
}
