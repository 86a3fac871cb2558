//! Reads one server within a time limit, and reports its problems.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::anyhow;
use deadpool_postgres::Client;
use posthaste::{Holder, HolderKind};
use posthaste_observe::redact;
use posthaste_observe::transactions::ObservedHolder;

use crate::connect::Address;
use crate::failure;
use crate::terminal::Terminal;

/// The time limit of a read. The next pass reads the server again on a new connection.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Server {
    name: String,
    address: Address,
    client: Option<Client>,
    is_failing: bool,
    is_unwatched_reported: bool,
}

/// The state of a server at one time.
pub(super) struct Reading {
    pub(super) transactions: Vec<ObservedHolder>,
    is_follower: bool,
    sees_sessions: bool,
    /// Tables of the connected database with the most dead rows.
    pub(super) dead_rows: Vec<String>,
    /// The number of followers that stream from this server.
    followers: i64,
}

impl Server {
    pub(super) fn new(name: String, address: Address) -> Self {
        Self {
            name,
            address,
            client: None,
            is_failing: false,
            is_unwatched_reported: false,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the connection of the last read, if that succeeded.
    pub(super) fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    pub(super) async fn read(&mut self) -> anyhow::Result<Reading> {
        // After a failed or abandoned read an old answer may still arrive on the connection.
        let client = self.client.take().filter(|client| !client.is_closed());
        let read = async {
            let client = match client {
                Some(client) => client,
                None => self.address.connect().await?,
            };
            let reading = read_server(&self.name, &client).await?;
            anyhow::Ok((client, reading))
        };
        let within = tokio::time::timeout(READ_TIMEOUT, read).await;
        let (client, reading) = within.map_err(|_| anyhow!("no answer within 10 s"))??;
        self.client = Some(client);
        self.is_failing = false;
        Ok(reading)
    }

    /// Returns the error as a line, and logs it once per outage.
    pub(super) fn record_failure(&mut self, error: &anyhow::Error) -> String {
        let error = failure::error_line(error);
        let server = &*self.name;
        if !self.is_failing {
            tracing::warn!(
                server,
                error,
                "txwatch cannot query a server; it tries again"
            );
        }
        self.is_failing = true;
        format!("{server} cannot be read: {error}")
    }

    /// Returns why the supervisor does not see everything; `watched` followers are configured.
    pub(super) fn problems(
        &mut self,
        reading: &Reading,
        watched: usize,
        terminal: &Terminal,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        let server = &self.name;
        if !reading.sees_sessions {
            problems.push(format!(
                "on {server} this role sees only its own sessions: GRANT pg_monitor TO it"
            ));
        }
        let unwatched = usize::try_from(reading.followers).unwrap_or(0);
        if !reading.is_follower && unwatched > watched {
            let missing = unwatched - watched;
            problems.push(format!(
                "{missing} followers stream from {server} and are not watched: add them to \
                 followers in [txwatch]"
            ));
        }
        if !problems.is_empty() && !self.is_unwatched_reported {
            for problem in &problems {
                terminal.print_remark(problem);
            }
            self.is_unwatched_reported = true;
        }
        problems
    }
}

async fn read_server(server: &str, client: &Client) -> anyhow::Result<Reading> {
    let row = client
        .query_typed_one(include_str!("server.sql"), &[])
        .await?;
    let costs = read_costs(client).await?;
    let all = posthaste::__private::transactions(client).await?;
    let is_follower = row.try_get("is_follower")?;
    let has_feedback: bool = row.try_get("has_feedback")?;
    let oldest = all.iter().filter_map(|one| one.transactions).max();
    let seen = |mut holder: Holder| {
        holder.query = holder.query.as_deref().map(redact::statement);
        let key = (
            holder.pid.filter(|_| holder.kind == HolderKind::Session),
            holder.name.clone(),
        );
        let (queue_tables, has_enqueued) = costs.get(&key).copied().unwrap_or_default();
        ObservedHolder {
            server: server.to_owned(),
            is_oldest: holder.transactions.is_some() && holder.transactions == oldest,
            queue_tables,
            has_enqueued,
            has_feedback: if is_follower {
                Some(has_feedback)
            } else {
                None
            },
            holder,
        }
    };
    Ok(Reading {
        transactions: all.into_iter().map(seen).collect(),
        is_follower,
        dead_rows: row.try_get("dead_rows")?,
        sees_sessions: row.try_get("sees_sessions")?,
        followers: row.try_get("followers")?,
    })
}

type Costs = HashMap<(Option<i32>, Option<String>), (i64, bool)>;

/// Reads the locks on tables of queues and on segments, by session or prepared transaction.
async fn read_costs(client: &Client) -> anyhow::Result<Costs> {
    let rows = client.query_typed(include_str!("costs.sql"), &[]).await?;
    let costs: Result<Costs, tokio_postgres::Error> = rows
        .iter()
        .map(|row| {
            let key = (row.try_get("pid")?, row.try_get("name")?);
            Ok((
                key,
                (row.try_get("queue_tables")?, row.try_get("has_enqueued")?),
            ))
        })
        .collect();
    Ok(costs?)
}
