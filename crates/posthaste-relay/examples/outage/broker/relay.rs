//! The relay in a separate process, as in production.

use anyhow::Result;
use deadpool_postgres::{Manager, Pool};
use posthaste::Worker;
use posthaste_relay::{Mapping, RabbitMq, Relay, Template};
use tokio_postgres::NoTls;

use super::verdict::Way;

pub async fn run() -> Result<()> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = Pool::builder(Manager::new(url.parse()?, NoTls)).build()?;
    let rabbitmq = RabbitMq::new(&std::env::var("BROKER_URL")?)?;
    let mapping = Mapping::default().kind(Template::text(Way::Posthaste.queue()));
    let relay = Relay::to(rabbitmq).mapping(mapping).start().await?;
    let worker = Worker::builder(pool)
        .notifier(url.parse()?, NoTls)
        .consumer("annotations", relay)
        .start()
        .await?;
    println!("ready");
    Ok(worker.run_until_signal().await?)
}
