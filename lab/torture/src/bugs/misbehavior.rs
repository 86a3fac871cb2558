//! Wrong behaviour of the processes around the store.

use clap::ValueEnum;

/// What a worker, a producer or a relay does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Misbehavior {
    /// A handler says "done" and does it later.
    AcknowledgesFirst,
    /// Workers use one fence for everything.
    SharesAFence,
    /// A producer enqueues beside its transaction.
    WritesTwice,
    /// A producer takes a COMMIT without an answer for one that did not happen.
    TakesSilenceForNo,
    /// A relay says "accepted" and sends later.
    AnswersFirst,
    /// A relay takes what was not answered for accepted.
    TakesSilenceForYes,
    /// A relay answers for a message that it did not send.
    DropsTheLast,
    /// A relay gives a message another id each time.
    NamesAnew,
    /// A relay does not look for the message that costs it its connection.
    IsolatesNothing,
    /// A relay takes a server that is away for a fault of the message.
    BlamesTheMessage,
    /// Relays send in order, but all of them at once.
    SendsSideBySide,
    /// A relay closes jobs whose receiver has not confirmed them.
    StopsAtAcceptance,
    /// A capture does not send an event now and then.
    LosesAnEvent,
    /// A capture sends the events of a batch the wrong way round.
    SwapsEvents,
    /// A capture writes a job twice now and then.
    WritesAJobTwice,
}

impl Misbehavior {
    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
