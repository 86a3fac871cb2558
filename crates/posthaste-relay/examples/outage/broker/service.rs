//! The web service, with both ways.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::extract::State;
use axum::{Router, routing::post};
use deadpool_postgres::Pool;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use posthaste::NewJob;
use serde_json::json;
use tokio::sync::Mutex;

use super::verdict::Way;
use crate::process::{self, Failed};

/// How long the old way waits for the broker before it drops a message.
const PATIENCE: Duration = Duration::from_secs(5);

struct Service {
    pool: Pool,
    broker: String,
    link: Mutex<Option<Arc<BrokerConnection>>>,
}

/// The old way's connection, which is replaced after each failure.
struct BrokerConnection {
    _connection: Connection,
    channel: Channel,
}

pub async fn run() -> Result<()> {
    let service = Arc::new(Service {
        pool: process::pool()?,
        broker: std::env::var("BROKER_URL")?,
        link: Mutex::default(),
    });
    let routes = Router::new()
        .route("/old", post(old))
        .route("/posthaste", post(new))
        .with_state(Arc::clone(&service));
    process::serve(routes).await?;
    service.pool.close();
    Ok(())
}

/// Saves, commits, and then publishes. A message that the broker does not accept is dropped: the
/// user gets a success, because the annotation is saved, and no receiver ever gets the message.
async fn old(State(service): State<Arc<Service>>, body: String) -> Result<String, Failed> {
    let client = service.pool.get().await?;
    let id = insert(&**client, Way::Old, &body).await?;
    drop(client);
    if let Err(error) = service.publish(id).await {
        eprintln!("annotation {id} was not published: {error:#}");
    }
    Ok(id.to_string())
}

/// Saves and enqueues in one transaction: both or neither.
async fn new(State(service): State<Arc<Service>>, body: String) -> Result<String, Failed> {
    let mut client = service.pool.get().await?;
    let tx = client.transaction().await?;
    let id = insert(&*tx, Way::Posthaste, &body).await?;
    let job = NewJob::new("annotation.saved", &json!({ "id": id }))?.queue("annotations");
    posthaste::enqueue(&tx, &job).await?;
    tx.commit().await?;
    Ok(id.to_string())
}

async fn insert(client: &impl tokio_postgres::GenericClient, way: Way, body: &str) -> Result<i64> {
    let insert = "INSERT INTO annotation (way, body) VALUES ($1, $2) RETURNING id";
    let row = client.query_one(insert, &[&way.name(), &body]).await?;
    Ok(row.get(0))
}

impl Service {
    /// Publishes within the time limit.
    async fn publish(&self, id: i64) -> Result<()> {
        let link = self.link().await?;
        let published = tokio::time::timeout(PATIENCE, link.publish(id)).await;
        let outcome = published.map_err(Into::into).flatten();
        if outcome.is_err() {
            // The next request opens another connection, unless one was opened already.
            let mut open = self.link.lock().await;
            open.take_if(|open| Arc::ptr_eq(open, &link));
        }
        outcome
    }

    async fn link(&self) -> Result<Arc<BrokerConnection>> {
        let mut open = self.link.lock().await;
        if let Some(link) = &*open {
            return Ok(Arc::clone(link));
        }
        let made = tokio::time::timeout(PATIENCE, BrokerConnection::to(&self.broker));
        let made = Arc::new(made.await??);
        Ok(Arc::clone(open.insert(made)))
    }
}

impl BrokerConnection {
    async fn to(broker: &str) -> Result<Self> {
        let connection = Connection::connect(broker, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        let options = ConfirmSelectOptions::default();
        channel.confirm_select(options).await?;
        Ok(Self {
            _connection: connection,
            channel,
        })
    }

    async fn publish(&self, id: i64) -> Result<()> {
        let payload = json!({ "id": id }).to_string();
        let persistent = BasicProperties::default().with_delivery_mode(2);
        let options = BasicPublishOptions::default();
        let queue = Way::Old.queue().into();
        let publish =
            self.channel
                .basic_publish("".into(), queue, options, payload.as_bytes(), persistent);
        publish.await?.await?;
        Ok(())
    }
}
