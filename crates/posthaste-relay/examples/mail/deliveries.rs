//! The table `mail_deliveries`: what is known of each mail.

use std::error::Error;

use deadpool_postgres::{Client, GenericClient, Pool};
use uuid::Uuid;

/// What a worker is to do with a task.
#[derive(Debug, PartialEq)]
pub enum Begun {
    /// Send this.
    Mail {
        recipient: String,
        subject: String,
        body: String,
    },
    /// An attempt before was lost: whether it sent the mail is not known.
    Unknown,
    /// Nothing: it is sent, failed, unknown, or nobody's.
    Over,
}

#[derive(Clone)]
pub struct Deliveries(Pool);

impl Deliveries {
    pub async fn open(pool: Pool) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let schema = include_str!("schema.sql");
        pool.get().await?.batch_execute(schema).await?;
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

    /// Before an attempt, which is known by its token from now on.
    pub async fn begin(
        &self,
        id: Uuid,
        token: Uuid,
    ) -> Result<Begun, Box<dyn Error + Send + Sync>> {
        let begin = include_str!("deliveries/begin.sql");
        let row = self
            .client()
            .await?
            .query_opt(begin, &[&id, &token])
            .await?;
        Ok(match row {
            Some(row) if row.get::<_, &str>(0) == "sending" => Begun::Mail {
                recipient: row.get(1),
                subject: row.get(2),
                body: row.get(3),
            },
            Some(_) => Begun::Unknown,
            None => Begun::Over,
        })
    }

    /// What became of the attempt of this token. False: it is not its to say any more.
    pub async fn finish(
        &self,
        id: Uuid,
        token: Uuid,
        state: &str,
        reason: Option<&str>,
    ) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let finish = include_str!("deliveries/finish.sql");
        let client = self.client().await?;
        let rows = client
            .execute(finish, &[&id, &token, &state, &reason])
            .await?;
        Ok(rows == 1)
    }

    /// Mails that somebody must look after, with their states: a hundred at most, the next time
    /// others.
    pub async fn open_ones(
        &self,
        patience: f64,
        retries_failed: bool,
    ) -> Result<Vec<(Uuid, String)>, Box<dyn Error + Send + Sync>> {
        let open = include_str!("deliveries/open.sql");
        let client = self.client().await?;
        let rows = client.query(open, &[&patience, &retries_failed]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Moves a mail on that is in this state. False: it was moved by somebody else.
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

    async fn client(&self) -> Result<Client, Box<dyn Error + Send + Sync>> {
        Ok(self.0.get().await?)
    }
}
