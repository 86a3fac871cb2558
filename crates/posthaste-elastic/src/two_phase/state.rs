//! The states of a transaction and the only ways from one to another. They go forward only.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a transaction is, by the six names of the published protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Written down; nobody has begun it.
    Created,
    /// Its holds are being put on the documents. It may still commit or abort.
    Pending,
    /// Decided: all documents held it, and will have it.
    Committed,
    /// Every document has it, and none holds it any more.
    Finished,
    /// Decided: no document will have it.
    Terminating,
    /// No document has it, and none holds it any more.
    RolledBack,
}

/// What can happen to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Somebody set about it.
    Begun,
    /// All of its documents hold it.
    Held,
    /// All of its documents have it.
    Settled,
    /// Somebody gave it up.
    Abandoned,
    /// All of its documents are rid of it.
    Undone,
}

/// An event that cannot happen in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a transaction that is {state} cannot be {event:?}")]
pub struct IllegalTransition {
    /// Where the transaction was.
    pub state: State,
    /// The requested effects.
    pub event: Event,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Created,
        Self::Pending,
        Self::Committed,
        Self::Finished,
        Self::Terminating,
        Self::RolledBack,
    ];

    /// The whole law.
    ///
    /// ```
    /// use posthaste_elastic::two_phase::{Event, State};
    /// assert_eq!(State::Pending.next(Event::Held), Ok(State::Committed));
    /// assert!(State::Committed.next(Event::Abandoned).is_err());
    /// ```
    pub fn next(self, event: Event) -> Result<Self, IllegalTransition> {
        match (self, event) {
            (Self::Created, Event::Begun) => Ok(Self::Pending),
            // Nothing is held for it yet: only who saw it pending may hold.
            (Self::Created, Event::Abandoned) => Ok(Self::RolledBack),
            (Self::Pending, Event::Held) => Ok(Self::Committed),
            (Self::Pending, Event::Abandoned) => Ok(Self::Terminating),
            (Self::Committed, Event::Settled) => Ok(Self::Finished),
            (Self::Terminating, Event::Undone) => Ok(Self::RolledBack),
            (state, event) => Err(IllegalTransition { state, event }),
        }
    }

    /// Nothing happens to it any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Finished | Self::RolledBack)
    }
}

/// As the documents say it.
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
    fn states_have_readable_names() {
        for state in State::ALL {
            let spelled = serde_json::to_value(state).unwrap();
            assert_eq!(spelled, state.to_string());
        }
    }
}
