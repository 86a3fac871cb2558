//! Builds and starts a relay.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use posthaste::{Backoff, Database, Error};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::destination::contract::{DEFAULT_LONGEST_OUTAGE, Destination};
use crate::engine::health::DestinationProblem;
use crate::engine::lease::Lease;
use crate::engine::options::{Ack, DEFAULT_TIME_LIMIT, OnAmbiguous, RelayOptions};
use crate::engine::references::References;
use crate::engine::relay::Relay;
use crate::engine::send;
use crate::engine::shared::Shared;
use crate::message::mapping::Mapping;

/// Builds a relay.
pub struct RelayBuilder {
    name: String,
    destination: Arc<dyn Destination>,
    options: RelayOptions,
    allowed: Vec<String>,
    statements: BTreeMap<String, String>,
    database: Option<Database>,
    waits_if_misconfigured: bool,
}

impl Relay {
    /// Builds a relay to this destination.
    pub fn to(destination: impl Destination) -> RelayBuilder {
        Self::to_any(Arc::new(destination))
    }

    /// As [`to`](Self::to), for a destination that is chosen at run time.
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
            options: RelayOptions {
                mapping: Mapping::default(),
                batch: 10,
                concurrency: 4,
                time_limit: DEFAULT_TIME_LIMIT,
                ack: Ack::default(),
                ordered: false,
                on_ambiguous: OnAmbiguous::default(),
                backoff: Backoff::default(),
                longest_outage: DEFAULT_LONGEST_OUTAGE,
            },
        }
    }

    /// Sets the name in reports; empty by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how a message is made from a job.
    pub fn mapping(mut self, mapping: Mapping) -> Self {
        self.options.mapping = mapping;
        self
    }

    /// Sets how many messages are sent together; 10 by default.
    pub fn batch(mut self, messages: usize) -> Self {
        self.options.batch = messages;
        self
    }

    /// Sets how many batches are in flight at once; 4 by default, 1 in [an ordered
    /// relay](Self::ordered). As many jobs again wait in the relay.
    pub fn concurrency(mut self, batches: usize) -> Self {
        self.options.concurrency = batches;
        self
    }

    /// Sets how long sending a batch may take before the destination counts as unavailable; 30 s by
    /// default.
    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.options.time_limit = time_limit;
        self
    }

    /// Sets when a job is done; by default when the destination has accepted it.
    pub fn ack(mut self, ack: Ack) -> Self {
        self.options.ack = ack;
        self
    }

    /// Sets whether jobs are sent in the lane's order: transactions in the order in which they
    /// became visible, ids within a transaction. Then one relay sends at a time, over all
    /// processes, and one batch at a time. While the destination is down the batch stays in memory,
    /// so that nothing overtakes it. A relay that stops first sends the jobs in memory, within the
    /// grace period. Jobs that it gives back after that come after the waiting ones, as does a
    /// message that is retried. False by default: many relays send at once, several batches each,
    /// in no order except among jobs with the same ordering key.
    pub fn ordered(mut self, ordered: bool) -> Self {
        self.options.ordered = ordered;
        self
    }

    /// Sets what happens to messages that may have arrived, if the receiver cannot detect
    /// duplicates.
    pub fn on_ambiguous(mut self, on_ambiguous: OnAmbiguous) -> Self {
        self.options.on_ambiguous = on_ambiguous;
        self
    }

    /// Sets the delay before the next attempt of a message that is retried.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.options.backoff = backoff;
        self
    }

    /// Sets the longest outage after which a message whose answer was lost is sent again; 24 hours
    /// by default. A destination that drops duplicates for a shorter time is refused, and the error
    /// names the setting.
    pub fn longest_outage(mut self, outage: Duration) -> Self {
        self.options.longest_outage = outage;
        self
    }

    /// Relays although this setting of the destination breaks the guarantees; the error names the
    /// setting.
    pub fn allow_unsafe(mut self, setting: impl Into<String>) -> Self {
        self.allowed.push(setting.into());
        self
    }

    /// Sends the row itself if a row of `posthaste.outbox` only refers to a row of this table: the
    /// first column of the statement's result for `$1`, the row's id as text, in json, jsonb, text
    /// or bytea. References to tables without a statement are then rejected; if no table has a
    /// statement, references are sent as they are. Needs [`database`](Self::database).
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

    /// Sets the database of the rows to which jobs refer: a pool of deadpool-postgres or of sqlx,
    /// or a [`Database`]. Unless it is a pool of deadpool-postgres, the relay opens at most as many
    /// connections as its [`concurrency`](Self::concurrency).
    pub fn database(self, database: impl Into<Database>) -> Self {
        let database = Some(database.into());
        Self { database, ..self }
    }

    /// Starts even if a setting of the destination breaks the guarantees or the destination cannot
    /// be used at all, which [`Relay::misconfiguration`] reports. The jobs wait in Postgres, as for
    /// a destination that is down, until the problem is fixed. For programs with several relays, of
    /// which one must not stop the others.
    pub fn wait_if_misconfigured(self) -> Self {
        let waits_if_misconfigured = true;
        Self {
            waits_if_misconfigured,
            ..self
        }
    }

    /// Starts the relay on the current runtime. Fails if a setting of the destination breaks the
    /// guarantees; if the destination cannot be reached, its settings are checked later, before
    /// anything is sent.
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
                shared.record_unsafe_setting(&problem);
                // Nothing else sets it.
                let _ = shared.misconfiguration.set(problem);
            }
            Err(DestinationProblem::Unsafe(problem)) => return Err(Error::config(problem)),
            Err(DestinationProblem::Down(reason)) => shared.record_outage(&reason),
        }
        tokio::spawn(send::run_sender(Arc::clone(&shared)));
        Ok(Relay { shared })
    }
}

/// Returns the objection to the first header of a mapping that is reserved by the destination.
pub(crate) fn reserved_header(destination: &dyn Destination, mapping: &Mapping) -> Option<String> {
    mapping.headers().find_map(|name| {
        let why = destination.header_objection(name)?;
        Some(format!("headers.{name}: {why}"))
    })
}
