//! An asynq queue, read without asynq: its lists and sets are what they are, so that workers of
//! both kinds can share them.
//!
//! A task is taken together with a lease, which is renewed while the task is worked. When a worker
//! is lost, its lease ends and the task goes back to the line. The one that comes back late finds
//! that the lease is another one and changes nothing.

use std::error::Error;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Script, ScriptInvocation};
use uuid::Uuid;

/// How long a task is a worker's without its saying so again.
pub const LEASE: Duration = Duration::from_secs(30);
/// For this long a task that was done is known, and not queued again.
const RETENTION: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone)]
pub struct Queue {
    connection: MultiplexedConnection,
    name: String,
    lease: Duration,
}

/// The right to work a task, until a time that is told by Redis' clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    pub id: Uuid,
    ends: String,
}

/// Where a task goes when its run has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// The work is done: its id is known for a day.
    Completed,
    /// It is given up here: somebody looks after it elsewhere.
    Archived,
    /// It comes back after this.
    Later(Duration),
}

impl Queue {
    pub async fn open(
        url: &str,
        name: &str,
        lease: Duration,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let client = redis::Client::open(url)?;
        Ok(Self {
            connection: client.get_multiplexed_async_connection().await?,
            name: name.to_owned(),
            lease,
        })
    }

    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The next task, if one waits. An id that is none of ours is archived.
    pub async fn take(&self) -> Result<Option<Lease>, Box<dyn Error + Send + Sync>> {
        let script = Script::new(include_str!("queue/take.lua"));
        let mut call = script.prepare_invoke();
        for key in ["pending", "paused", "active", "lease"] {
            call.key(self.key(key));
        }
        call.arg(self.lease.as_secs()).arg(self.key("t:"));
        let Some((id, ends)) = self.ask::<Option<(String, String)>>(&call).await? else {
            return Ok(None);
        };
        match id.parse() {
            Ok(id) => Ok(Some(Lease { id, ends })),
            Err(_) => {
                self.settle(&id, &ends, End::Archived).await?;
                Ok(None)
            }
        }
    }

    /// Keeps a task. False: it is somebody else's by now.
    pub async fn renew(&self, lease: &mut Lease) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let script = Script::new(include_str!("queue/renew.lua"));
        let mut call = script.key(self.key("lease"));
        call.arg(lease.id.to_string())
            .arg(&lease.ends)
            .arg(self.lease.as_secs());
        match self.ask::<Option<String>>(&call).await? {
            Some(ends) => lease.ends = ends,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Ends a run. False: it was somebody else's by now, and nothing changed.
    pub async fn end(&self, lease: &Lease, end: End) -> Result<bool, Box<dyn Error + Send + Sync>> {
        self.settle(&lease.id.to_string(), &lease.ends, end).await
    }

    async fn settle(
        &self,
        id: &str,
        ends: &str,
        end: End,
    ) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let (place, after, state) = match end {
            End::Completed => ("completed", RETENTION, "completed"),
            End::Archived => ("archived", Duration::ZERO, "archived"),
            End::Later(after) => ("retry", after, "retry"),
        };
        let script = Script::new(include_str!("queue/settle.lua"));
        let mut call = script.prepare_invoke();
        for key in ["active", "lease", place] {
            call.key(self.key(key));
        }
        call.key(self.key("t:") + id);
        call.arg(id).arg(ends).arg(after.as_secs()).arg(state);
        Ok(self.ask::<u32>(&call).await? == 1)
    }

    /// Brings back what lost workers had, and what is due again. To be called now and then; how
    /// many came back.
    pub async fn tend(&self) -> Result<u32, Box<dyn Error + Send + Sync>> {
        let script = Script::new(include_str!("queue/tend.lua"));
        let mut call = script.prepare_invoke();
        for key in ["pending", "active", "lease", "retry", "completed"] {
            call.key(self.key(key));
        }
        call.arg(self.key("t:"));
        self.ask(&call).await
    }

    /// Queues a task again, unless its work was done. What it was: `completed`, `archived`,
    /// `missing`, or on its way.
    pub async fn again(&self, id: Uuid) -> Result<String, Box<dyn Error + Send + Sync>> {
        let script = Script::new(include_str!("queue/again.lua"));
        let mut call = script.prepare_invoke();
        for key in ["pending", "archived"] {
            call.key(self.key(key));
        }
        call.key(self.key("t:") + &id.to_string());
        call.arg(id.to_string()).arg(self.message(id));
        self.ask(&call).await
    }

    /// What asynq keeps of a task, in its protobuf: type, payload, id, queue, retry, timeout and
    /// retention.
    fn message(&self, id: Uuid) -> Vec<u8> {
        let id = id.to_string();
        let texts = [(1, "mail:send"), (2, "{}"), (3, &id), (4, &self.name)];
        let numbers = [(5, 25), (8, 1800), (12, RETENTION.as_secs())];
        let mut message = Vec::new();
        for (field, text) in texts {
            put(&mut message, field << 3 | 2);
            put(&mut message, text.len() as u64);
            message.extend_from_slice(text.as_bytes());
        }
        for (field, number) in numbers {
            put(&mut message, field << 3);
            put(&mut message, number);
        }
        message
    }

    fn key(&self, part: &str) -> String {
        format!("asynq:{{{}}}:{part}", self.name)
    }

    async fn ask<T: redis::FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, Box<dyn Error + Send + Sync>> {
        Ok(call.invoke_async(&mut self.connection.clone()).await?)
    }
}

/// Seven bits at a time, the lowest first.
fn put(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}
