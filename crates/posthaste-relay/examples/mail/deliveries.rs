//! The table `mail_deliveries`: the known state of each mail.

use std::error::Error;

use deadpool_postgres::{Client, GenericClient, Pool};
use jiff::Timestamp;
use posthaste::Backoff;
use uuid::Uuid;

/// The number of mails read at a time.
pub const PAGE: usize = 100;

/// The next step of a worker with a task.
#[derive(Debug, PartialEq)]
pub enum Begun {
    /// Sends this mail.
    Mail {
        recipient: String,
        subject: String,
        body: String,
    },
    /// An earlier attempt was lost: whether it sent the mail is unknown.
    Unknown,
    /// Nothing to do: the mail is in this state, or was never ordered.
    Over(Option<String>),
}

/// The outcome of an attempt.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub state: &'static str,
    pub reason: Option<String>,
    /// Whether it counts as an attempt: not if the mail cannot have been sent.
    pub counts: bool,
}

/// A mail that must be handled.
pub struct Open {
    pub id: Uuid,
    pub state: String,
    /// Whether the delay after its attempts has passed.
    pub is_due: bool,
}

/// Selects the mails to handle.
pub struct OpenQuery {
    /// In seconds: see `Reconciler`.
    pub patience: f64,
    pub retries_failed: bool,
    pub pause: Backoff,
    /// Mails that were checked since this time are skipped.
    pub since: Timestamp,
}

/// A mail of which it is unknown whether it was sent.
pub struct Unknown {
    pub id: Uuid,
    pub recipient: String,
    pub attempt: i32,
    pub since: Timestamp,
    pub reason: String,
}

#[derive(Clone)]
pub struct Deliveries(Pool);

impl Deliveries {
    /// Creates the table if it does not exist. An existing table is not changed: a change would
    /// wait for each open order, and all other statements for the change.
    pub async fn open(pool: Pool) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut client = pool.get().await?;
        let transaction = client.transaction().await?;
        // Processes that start at the same time do this one after the other, and the first creates
        // the table.
        let lock = "SELECT pg_advisory_xact_lock(hashtext('mail_deliveries'))";
        transaction.batch_execute(lock).await?;
        // The trigger is created last.
        let installed =
            "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'mail_deliveries_notify'
             AND tgrelid = to_regclass('mail_deliveries'))";
        if !transaction
            .query_one(installed, &[])
            .await?
            .get::<_, bool>(0)
        {
            let schema = include_str!("schema.sql");
            transaction.batch_execute(schema).await?;
        }
        transaction.commit().await?;
        Ok(Self(pool))
    }

    /// Orders a mail in the caller's transaction.
    pub async fn order(
        transaction: &impl GenericClient,
        recipient: &str,
        subject: &str,
        body: &str,
    ) -> Result<Uuid, tokio_postgres::Error> {
        let order = include_str!("deliveries/order.sql");
        let row = transaction
            .query_one(order, &[&recipient, &subject, &body])
            .await?;
        Ok(row.get(0))
    }

    /// Records the beginning of an attempt, which its token identifies.
    pub async fn begin(
        &self,
        id: Uuid,
        token: Uuid,
    ) -> Result<Begun, Box<dyn Error + Send + Sync>> {
        let begin = include_str!("deliveries/begin.sql");
        let client = self.client().await?;
        let Some(row) = client.query_opt(begin, &[&id, &token]).await? else {
            return Ok(Begun::Over(None));
        };
        let state: String = row.get("state");
        Ok(match (row.get("is_begun"), state.as_str()) {
            (true, "sending") => Begun::Mail {
                recipient: row.get("recipient"),
                subject: row.get("subject"),
                body: row.get("body"),
            },
            (true, _) => Begun::Unknown,
            (false, _) => Begun::Over(Some(state)),
        })
    }

    /// Records the outcome of the attempt of this token; false if another attempt has replaced it.
    pub async fn finish(
        &self,
        id: Uuid,
        token: Uuid,
        outcome: &Outcome,
    ) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let finish = include_str!("deliveries/finish.sql");
        let Outcome {
            state,
            reason,
            counts,
        } = outcome;
        let client = self.client().await?;
        let rows = client
            .execute(finish, &[&id, &token, state, reason, counts])
            .await?;
        Ok(rows == 1)
    }

    /// Returns the database's time.
    pub async fn now(&self) -> Result<Timestamp, Box<dyn Error + Send + Sync>> {
        let client = self.client().await?;
        let now = client.query_one("SELECT clock_timestamp()", &[]).await?;
        Ok(now.get(0))
    }

    /// Returns open mails, at most a page; other ones the next time.
    pub async fn list_open(
        &self,
        query: &OpenQuery,
    ) -> Result<Vec<Open>, Box<dyn Error + Send + Sync>> {
        let open = include_str!("deliveries/open.sql");
        let (base, cap) = (
            query.pause.base.as_secs_f64(),
            query.pause.cap.as_secs_f64(),
        );
        let (retries_failed, page) = (query.retries_failed, PAGE as i64);
        let client = self.client().await?;
        let rows = client
            .query(
                open,
                &[
                    &query.patience,
                    &retries_failed,
                    &query.since,
                    &base,
                    &cap,
                    &page,
                ],
            )
            .await?;
        let open = |row: &tokio_postgres::Row| Open {
            id: row.get(0),
            state: row.get(1),
            is_due: row.get(2),
        };
        Ok(rows.iter().map(open).collect())
    }

    /// Moves a mail from this state; false if another process has moved it.
    pub async fn resolve(
        &self,
        id: Uuid,
        from: &str,
        to: &str,
        reason: &str,
    ) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let resolve = include_str!("deliveries/resolve.sql");
        let client = self.client().await?;
        let rows = client.execute(resolve, &[&id, &from, &to, &reason]).await?;
        Ok(rows == 1)
    }

    /// Returns the mails whose outcome is unknown, the oldest first.
    pub async fn unknown(&self) -> Result<Vec<Unknown>, Box<dyn Error + Send + Sync>> {
        let unknown = include_str!("deliveries/unknown.sql");
        let rows = self.client().await?.query(unknown, &[]).await?;
        let unknown = |row: &tokio_postgres::Row| Unknown {
            id: row.get(0),
            recipient: row.get(1),
            attempt: row.get(2),
            since: row.get(3),
            reason: row.get(4),
        };
        Ok(rows.iter().map(unknown).collect())
    }

    /// Returns the state of a mail; `None` if it was never ordered.
    pub async fn state(&self, id: Uuid) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        let state = "SELECT state FROM mail_deliveries WHERE delivery_id = $1";
        let row = self.client().await?.query_opt(state, &[&id]).await?;
        Ok(row.map(|row| row.get(0)))
    }

    async fn client(&self) -> Result<Client, Box<dyn Error + Send + Sync>> {
        Ok(self.0.get().await?)
    }
}
