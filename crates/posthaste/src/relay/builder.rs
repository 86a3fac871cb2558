//! Describes a relay, and begins it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::carry;
use super::health;
use super::lease::Lease;
use super::reference::References;
use super::{Destination, Mapping, Mode, Options, Relay, Shared, Strength, Unknown};
use crate::error::{Error, ErrorKind};
use crate::retry::Backoff;

/// Describes a relay.
pub struct RelayBuilder {
    name: String,
    destination: Arc<dyn Destination>,
    options: Options,
    allowed: Vec<String>,
    statements: BTreeMap<String, String>,
    pool: Option<Pool>,
}

impl RelayBuilder {
    pub(super) fn new(destination: Arc<dyn Destination>) -> Self {
        Self {
            name: String::new(),
            destination,
            allowed: Vec::new(),
            statements: BTreeMap::new(),
            pool: None,
            options: Options {
                mapping: Mapping::default(),
                batch: 10,
                concurrency: 4,
                time_limit: Duration::from_secs(30),
                strength: Strength::default(),
                mode: Mode::default(),
                unknown: Unknown::default(),
                backoff: Backoff::default(),
                longest_outage: health::LONGEST_OUTAGE,
            },
        }
    }

    /// What it is called in reports; nothing unless said otherwise.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How a message is made of a job.
    pub fn mapping(mut self, mapping: Mapping) -> Self {
        self.options.mapping = mapping;
        self
    }

    /// How many messages are sent together; 10 unless said otherwise.
    pub fn batch(mut self, messages: usize) -> Self {
        self.options.batch = messages;
        self
    }

    /// How many batches are under way at once; 4 unless said otherwise, one in [`Mode::Drain`]. As many jobs again wait in the relay for their turn.
    pub fn concurrency(mut self, batches: usize) -> Self {
        self.options.concurrency = batches;
        self
    }

    /// How long sending a batch may take until it counts as unanswered; 30 s unless said otherwise.
    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.options.time_limit = time_limit;
        self
    }

    /// When a job is done; when the destination has it unless said otherwise.
    pub fn strength(mut self, strength: Strength) -> Self {
        self.options.strength = strength;
        self
    }

    /// Who sends, and in which order.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options.mode = mode;
        self
    }

    /// What becomes of messages whose fate is unknown where duplicates cannot be told.
    pub fn unknown(mut self, unknown: Unknown) -> Self {
        self.options.unknown = unknown;
        self
    }

    /// The wait before the next attempt of a message that was refused for now.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.options.backoff = backoff;
        self
    }

    /// How long an outage may last after which a message whose answer was lost is sent again; 24 hours unless said otherwise. A destination that drops duplicates for a shorter time is
    /// refused by its setting.
    pub fn longest_outage(mut self, outage: Duration) -> Self {
        self.options.longest_outage = outage;
        self
    }

    /// Relays although a setting of the destination breaks the promise: its name, as the refusal had it.
    pub fn allow(mut self, setting: impl Into<String>) -> Self {
        self.allowed.push(setting.into());
        self
    }

    /// Sends the row itself where a row of `posthaste.outbox` only refers to one of this table: the first column of what the statement gives for `$1`, the
    /// row's id as a text, in json, jsonb, text or bytea. Rows of tables without a statement are refused from then on; without any statement
    /// references are sent as such. Needs [`database`](Self::database).
    ///
    /// ```no_run
    /// # use posthaste::relay::{Lines, Relay};
    /// # fn relay(pool: deadpool_postgres::Pool) -> posthaste::relay::RelayBuilder {
    /// Relay::to(Lines::new(tokio::io::stdout()))
    ///     .database(pool)
    ///     .resolve("orders", "SELECT to_jsonb(o) FROM orders o WHERE o.id = $1::bigint")
    /// # }
    /// ```
    pub fn resolve(mut self, table: impl Into<String>, statement: impl Into<String>) -> Self {
        self.statements.insert(table.into(), statement.into());
        self
    }

    /// Where the rows are that jobs refer to.
    pub fn database(self, pool: Pool) -> Self {
        let pool = Some(pool);
        Self { pool, ..self }
    }

    /// Begins to take jobs, on the runtime that this is called on. Refused when a setting of the destination breaks what is promised; a
    /// destination that cannot be reached is asked about its settings later, before anything is sent.
    pub async fn start(mut self) -> Result<Relay, Error> {
        let options = &mut self.options;
        if options.mode == Mode::Drain {
            options.concurrency = 1;
        }
        if options.batch == 0 || options.concurrency == 0 || options.time_limit.is_zero() {
            let problem = "a relay's batch, concurrency and time limit must not be 0";
            return Err(ErrorKind::Config(problem.into()).into());
        }
        let lease = Lease::before(options.mode);
        let references = match (self.statements.is_empty(), self.pool) {
            (true, _) => None,
            (false, Some(pool)) => Some(References {
                pool,
                statements: self.statements,
            }),
            (false, None) => {
                let problem = "resolve: a relay that reads rows needs a database";
                return Err(ErrorKind::Config(problem.into()).into());
            }
        };
        let shared = Arc::new(Shared {
            name: self.name,
            destination: self.destination,
            options: self.options,
            allowed: self.allowed,
            references,
            line: Mutex::default(),
            lease: Mutex::new(lease),
            arrived: Notify::new(),
            room: Arc::default(),
            stopping: CancellationToken::new(),
            aborted: CancellationToken::new(),
            gone: CancellationToken::new(),
            status: Mutex::default(),
        });
        match shared.verify().await {
            Ok(()) => {}
            Err(health::Unfit::Weak(problem)) => return Err(ErrorKind::Config(problem).into()),
            Err(health::Unfit::Down(reason)) => shared.trouble(&reason),
        }
        tokio::spawn(carry::run(Arc::clone(&shared)));
        Ok(Relay { shared })
    }
}
