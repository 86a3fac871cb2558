//! Describes a relay, and begins it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use posthaste::{Backoff, Database, Error};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::destination::contract::{Destination, LONGEST_OUTAGE};
use crate::engine::health::DestinationProblem;
use crate::engine::lease::Lease;
use crate::engine::options::{Ack, OnAmbiguous, Options, TIME_LIMIT};
use crate::engine::references::References;
use crate::engine::relay::Relay;
use crate::engine::send;
use crate::engine::shared::Shared;
use crate::message::mapping::Mapping;

/// Describes a relay.
pub struct RelayBuilder {
    name: String,
    destination: Arc<dyn Destination>,
    options: Options,
    allowed: Vec<String>,
    statements: BTreeMap<String, String>,
    database: Option<Database>,
    waits_if_misconfigured: bool,
}

impl Relay {
    /// Begins to describe a relay to this destination.
    pub fn to(destination: impl Destination) -> RelayBuilder {
        Self::to_any(Arc::new(destination))
    }

    /// As [`to`](Self::to), for a destination that was chosen at run time.
    pub fn to_any(destination: Arc<dyn Destination>) -> RelayBuilder {
        RelayBuilder::new(destination)
    }
}

impl RelayBuilder {
    pub(crate) fn new(destination: Arc<dyn Destination>) -> Self {
        Self {
            name: String::new(),
            destination,
            allowed: Vec::new(),
            statements: BTreeMap::new(),
            database: None,
            waits_if_misconfigured: false,
            options: Options {
                mapping: Mapping::default(),
                batch: 10,
                concurrency: 4,
                time_limit: TIME_LIMIT,
                ack: Ack::default(),
                ordered: false,
                on_ambiguous: OnAmbiguous::default(),
                backoff: Backoff::default(),
                longest_outage: LONGEST_OUTAGE,
            },
        }
    }

    /// What it is called in reports; nothing by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How a message is made of a job.
    pub fn mapping(mut self, mapping: Mapping) -> Self {
        self.options.mapping = mapping;
        self
    }

    /// How many messages are sent together; 10 by default.
    pub fn batch(mut self, messages: usize) -> Self {
        self.options.batch = messages;
        self
    }

    /// How many batches are in flight at once; 4 by default, one in [an ordered
    /// relay](Self::ordered). As many jobs again wait in the relay for their turn.
    pub fn concurrency(mut self, batches: usize) -> Self {
        self.options.concurrency = batches;
        self
    }

    /// How long sending a batch may take until the destination counts as unavailable; 30 s by
    /// default.
    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.options.time_limit = time_limit;
        self
    }

    /// When a job is done; when the destination has it by default.
    pub fn ack(mut self, ack: Ack) -> Self {
        self.options.ack = ack;
        self
    }

    /// Whether jobs are sent in the lane's order: transactions as they became visible, ids within
    /// one. Then one relay sends at a time, over all processes, and one batch at a time. While the
    /// destination is down the batch stays in memory, so that nothing overtakes it. A relay that
    /// stops sends what it has in memory first, as far as the grace period goes. What it gives back
    /// after that comes after what waits, as does a message that is to be retried. False by
    /// default: many relays send at once, several batches each, in no order except among jobs with
    /// the same ordering key.
    pub fn ordered(mut self, ordered: bool) -> Self {
        self.options.ordered = ordered;
        self
    }

    /// What to do with messages that may or may not have arrived, where the receiver cannot
    /// recognize duplicates.
    pub fn on_ambiguous(mut self, on_ambiguous: OnAmbiguous) -> Self {
        self.options.on_ambiguous = on_ambiguous;
        self
    }

    /// The wait before the next attempt of a message that is to be retried.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.options.backoff = backoff;
        self
    }

    /// How long an outage may last after which a message whose answer was lost is sent again; 24
    /// hours by default. A destination that drops duplicates for a shorter time is refused by its
    /// setting.
    pub fn longest_outage(mut self, outage: Duration) -> Self {
        self.options.longest_outage = outage;
        self
    }

    /// Relays although this setting of the destination breaks the promise; its name is as the error
    /// had it.
    pub fn allow_unsafe(mut self, setting: impl Into<String>) -> Self {
        self.allowed.push(setting.into());
        self
    }

    /// Sends the row itself where a row of `posthaste.outbox` only refers to one of this table: the
    /// first column of what the statement gives for `$1`, the row's id as a text, in json, jsonb,
    /// text or bytea. Rows of tables without a statement are refused from then on; without any
    /// statement references are sent as such. Needs [`database`](Self::database).
    ///
    /// ```no_run
    /// # use posthaste_relay::{Lines, Relay};
    /// # fn relay(pool: deadpool_postgres::Pool) -> posthaste_relay::RelayBuilder {
    /// Relay::to(Lines::new(tokio::io::stdout()))
    ///     .database(pool)
    ///     .resolve("orders", "SELECT to_jsonb(o) FROM orders o WHERE o.id = $1::bigint")
    /// # }
    /// ```
    pub fn resolve(mut self, table: impl Into<String>, statement: impl Into<String>) -> Self {
        self.statements.insert(table.into(), statement.into());
        self
    }

    /// Where the rows are that jobs refer to: a pool of deadpool-postgres or of sqlx, or a
    /// [`Database`]. Unless it is a pool of deadpool-postgres, the relay opens at most as many
    /// connections of its own as its [`concurrency`](Self::concurrency).
    pub fn database(self, database: impl Into<Database>) -> Self {
        let database = Some(database.into());
        Self { database, ..self }
    }

    /// Starts also when a setting of the destination breaks what is promised, or the destination
    /// cannot be used at all ([`Relay::misconfiguration`] says which): its jobs wait in Postgres,
    /// as for one that is down, until it is mended. For programs with several relays, of which one
    /// must not stop the others.
    pub fn wait_if_misconfigured(self) -> Self {
        let waits_if_misconfigured = true;
        Self {
            waits_if_misconfigured,
            ..self
        }
    }

    /// Begins to take jobs, on the runtime that this is called on. Refused when a setting of the
    /// destination breaks what is promised; a destination that cannot be reached is asked about its
    /// settings later, before anything is sent.
    pub async fn start(mut self) -> Result<Relay, Error> {
        let options = &mut self.options;
        if options.ordered {
            options.concurrency = 1;
        }
        if options.batch == 0 || options.concurrency == 0 || options.time_limit.is_zero() {
            let problem = "a relay's batch, concurrency and time limit must not be 0";
            return Err(Error::config(problem));
        }
        if let Some(problem) = reserved_header(&*self.destination, &options.mapping) {
            return Err(Error::config(problem));
        }
        let lease = Lease::initial(options.ordered);
        let references = match (self.statements.is_empty(), self.database) {
            (true, _) => None,
            (false, Some(database)) => Some(References {
                pool: database.pool(options.concurrency)?,
                statements: self.statements,
            }),
            (false, None) => {
                let problem = "resolve: a relay that reads rows needs a database";
                return Err(Error::config(problem));
            }
        };
        let shared = Arc::new(Shared {
            name: self.name,
            destination: self.destination,
            options: self.options,
            allowed: self.allowed,
            references,
            buffer: Mutex::default(),
            lease: Mutex::new(lease),
            arrived: Notify::new(),
            room: Arc::default(),
            stopping: CancellationToken::new(),
            aborted: CancellationToken::new(),
            gone: CancellationToken::new(),
            misconfiguration: OnceLock::new(),
            status: Mutex::default(),
            receiver_queues: Mutex::default(),
            logged_reasons: Mutex::default(),
        });
        match shared.verify().await {
            Ok(()) => {}
            Err(DestinationProblem::Unsafe(problem)) if self.waits_if_misconfigured => {
                shared.is_unsafe(&problem);
                // It is set once.
                let _ = shared.misconfiguration.set(problem);
            }
            Err(DestinationProblem::Unsafe(problem)) => return Err(Error::config(problem)),
            Err(DestinationProblem::Down(reason)) => shared.went_down(&reason),
        }
        tokio::spawn(send::run(Arc::clone(&shared)));
        Ok(Relay { shared })
    }
}

/// What is wrong with the first header of a mapping that the destination has for itself.
pub(crate) fn reserved_header(destination: &dyn Destination, mapping: &Mapping) -> Option<String> {
    mapping.headers().find_map(|name| {
        let why = destination.rejects_header(name)?;
        Some(format!("headers.{name}: {why}"))
    })
}
