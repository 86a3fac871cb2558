//! Messages in a receiver's queue, as its reader recorded them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{How, Moment, Run};

/// A message of a receiver, in the order of its queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arrived {
    /// The key of the job, from its arguments.
    pub key: i64,
    /// The database's ID of the job.
    pub id: i64,
    /// The delivery id.
    pub delivery: String,
    /// The relay process that sent it, such as `w1.3`.
    pub relay: String,
    /// The epoch of the queue: a new one begins when the receiver's server has lost all its data.
    pub life: String,
    /// Its arguments.
    pub args: Value,
    /// When it was seen: soon after its arrival.
    pub at: Moment,
}

impl Arrived {
    /// The message as a run that ended when it began: a relay's job is done when it has arrived.
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
