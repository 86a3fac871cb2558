//! An asynq queue, read without asynq. Its lists and sets are asynq's, so workers of both kinds can
//! share it, and asynq's inspector shows the results.
//!
//! A task is taken together with a lease, which is renewed while the task runs. When a worker is
//! lost, its lease expires and the task returns to the queue. A worker that comes back late finds
//! another lease and changes nothing.

use std::error::Error;
use std::time::Duration;

use jiff::Timestamp;
use redis::Script;
use uuid::Uuid;

use super::connection::Connection;
use super::task::Task;

/// asynq's queue of mails, which is also `receiver_queue` in posthaste.toml.
pub const MAIL: &str = "mail";
/// How long a worker holds a task without renewing its lease.
pub const LEASE: Duration = Duration::from_secs(30);
/// How long a completed task is stored, and not queued again.
const RETENTION: Duration = Duration::from_secs(24 * 3600);
/// How long asynq stores the counts of a day, in seconds.
const COUNTED: u32 = 90 * 24 * 3600;

#[derive(Clone)]
pub struct Queue {
    connection: Connection,
    name: String,
    lease: Duration,
}

/// The right to work on a task, until a time of Redis' clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    pub id: Uuid,
    pub task: Task,
    ends: String,
}

/// The state of a task after a run.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The work is done: its id is stored for a day.
    Completed,
    /// The task ends here, for this reason: another worker handles it.
    Archived(String),
    /// It failed, for this reason, and returns after this delay.
    Again(Duration, String),
    /// It returns after this delay without counting an attempt: the task is not the cause.
    Back(Duration, String),
}

impl Queue {
    /// Does not connect yet.
    pub fn open(
        url: &str,
        name: &str,
        lease: Duration,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(Self {
            connection: Connection::new(url)?,
            name: name.to_owned(),
            lease,
        })
    }

    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Takes the next task, if one waits. An invalid id is archived.
    pub async fn take(&self) -> Result<Option<Lease>, Box<dyn Error + Send + Sync>> {
        let script = Script::new(include_str!("queue/take.lua"));
        let mut call = script.prepare_invoke();
        for key in ["pending", "paused", "active", "lease"] {
            call.key(self.key(key));
        }
        call.arg(self.lease.as_secs()).arg(self.key("t:"));
        let taken = self
            .connection
            .ask::<Option<(String, String, Vec<u8>)>>(&call);
        let Some((id, ends, message)) = taken.await? else {
            return Ok(None);
        };
        let Ok(known) = id.parse() else {
            let end = End::Archived("its id is none of a mail".into());
            self.settle(&id, &ends, Task::read(message), end).await?;
            return Ok(None);
        };
        let task = match message.is_empty() {
            // Redis has dropped the task, but its id exists.
            true => Task::new(known, &self.name, RETENTION),
            false => Task::read(message),
        };
        Ok(Some(Lease {
            id: known,
            task,
            ends,
        }))
    }

    /// Renews a lease; false if another worker has the task.
    pub async fn renew(&self, lease: &mut Lease) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let script = Script::new(include_str!("queue/renew.lua"));
        let mut call = script.key(self.key("lease"));
        call.arg(lease.id.to_string())
            .arg(&lease.ends)
            .arg(self.lease.as_secs());
        match self.connection.ask::<Option<String>>(&call).await? {
            Some(ends) => lease.ends = ends,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Ends a run; false if another worker had the task, and nothing changed.
    pub async fn end(&self, lease: &Lease, end: End) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let task = lease.task.clone();
        self.settle(&lease.id.to_string(), &lease.ends, task, end)
            .await
    }

    async fn settle(
        &self,
        id: &str,
        ends: &str,
        task: Task,
        end: End,
    ) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let now = Timestamp::now();
        let day = now.strftime("%Y-%m-%d");
        let now = now.as_second().try_into().unwrap_or_default();
        let none = Duration::ZERO;
        let (state, after, task, processed, failed) = match end {
            End::Completed => ("completed", RETENTION, task.completed(now), 1, 0),
            End::Archived(reason) => ("archived", none, task.failed(&reason, now), 1, 1),
            End::Again(after, reason) => {
                let task = task.failed(&reason, now).once_more();
                ("retry", after, task, 1, 1)
            }
            End::Back(after, reason) => ("retry", after, task.failed(&reason, now), 0, 0),
        };
        let script = Script::new(include_str!("queue/settle.lua"));
        let mut call = script.prepare_invoke();
        for key in ["active", "lease", state] {
            call.key(self.key(key));
        }
        call.key(self.key("t:") + id);
        for counted in ["processed", "failed"] {
            call.key(self.key(counted));
            call.key(self.key(&format!("{counted}:{day}")));
        }
        call.arg(id).arg(ends).arg(after.as_secs()).arg(state);
        call.arg(task.bytes())
            .arg(processed)
            .arg(failed)
            .arg(COUNTED);
        Ok(self.connection.ask::<u32>(&call).await? == 1)
    }

    /// Returns tasks of lost workers and due retries to the queue; returns their number. Must be
    /// called periodically.
    pub async fn tend(&self) -> Result<u32, Box<dyn Error + Send + Sync>> {
        let script = Script::new(include_str!("queue/tend.lua"));
        let mut call = script.prepare_invoke();
        for key in ["pending", "active", "lease", "retry", "completed"] {
            call.key(self.key(key));
        }
        call.arg(self.key("t:"));
        self.connection.ask(&call).await
    }

    /// Queues a task again unless its work was done. Returns its previous state: `completed`,
    /// `archived`, `missing`, or that it is queued or running.
    pub async fn again(&self, id: Uuid) -> Result<String, Box<dyn Error + Send + Sync>> {
        let script = Script::new(include_str!("queue/again.lua"));
        let mut call = script.prepare_invoke();
        for key in ["pending", "archived"] {
            call.key(self.key(key));
        }
        call.key(self.key("t:") + &id.to_string());
        call.key("asynq:queues");
        let task = Task::new(id, &self.name, RETENTION);
        call.arg(id.to_string()).arg(task.bytes()).arg(&self.name);
        self.connection.ask(&call).await
    }

    fn key(&self, part: &str) -> String {
        format!("asynq:{{{}}}:{part}", self.name)
    }
}
