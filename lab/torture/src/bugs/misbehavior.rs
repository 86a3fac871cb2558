//! Wrong behaviour of the processes around the store.

use clap::ValueEnum;

/// An injected bug of a worker, a producer, a relay or a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Misbehavior {
    /// A handler reports completion before it has done its work
    AcknowledgesFirst,
    /// Workers use one fence for all jobs
    SharesAFence,
    /// A producer enqueues outside its transaction
    WritesTwice,
    /// A producer treats an unanswered COMMIT as rolled back
    TakesSilenceForNo,
    /// A relay reports acceptance before it sends
    AnswersFirst,
    /// A relay treats unanswered messages as accepted
    TakesSilenceForYes,
    /// A relay reports a message that it did not send
    DropsTheLast,
    /// A relay gives a message a new ID each time
    NamesAnew,
    /// A relay does not isolate the message that breaks its connection
    IsolatesNothing,
    /// A relay counts an unreachable server as a failure of the message
    BlamesTheMessage,
    /// Ordered relays all send at the same time
    SendsSideBySide,
    /// A relay completes jobs that the receiver has not confirmed
    StopsAtAcceptance,
    /// A capture occasionally omits an event
    LosesAnEvent,
    /// A capture sends the events of a batch in reverse order
    SwapsEvents,
    /// A capture occasionally writes a job twice
    WritesAJobTwice,
    /// Captures receive commits before the replica that may take over has them
    OvertakesReplicas,
}

impl Misbehavior {
    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
