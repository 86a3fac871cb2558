//! What stands in a receiver's queue, as its reader wrote it down.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{How, Moment, Run};

/// A line of a receiver, in the order of its queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arrived {
    /// Of the job, by its arguments.
    pub key: i64,
    /// The database's number of it.
    pub id: i64,
    /// The delivery id.
    pub delivery: String,
    /// The relay's process that sent it, such as `w1.3`.
    pub relay: String,
    /// Which of the queue's lives: a new one begins when the receiver's server has forgotten
    /// everything.
    pub life: String,
    /// Its arguments.
    pub args: Value,
    /// When it was seen there: soon after it came.
    pub at: Moment,
}

impl Arrived {
    /// A run that ended as it began: for the relay a job is done when it has arrived.
    pub(super) fn run(self) -> Run {
        Run {
            worker: self.relay,
            key: self.key,
            id: self.id,
            delivery: self.delivery,
            fence: self.life,
            attempt: 0,
            args: self.args,
            began: self.at,
            ended: Some((How::Done, self.at)),
        }
    }
}
