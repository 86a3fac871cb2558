//! Serves the console of the database in DATABASE_URL, for operators of this machine.
//!
//! `DATABASE_URL=postgres:///app cargo run -p posthaste-console --example console`

use std::net::SocketAddr;

use anyhow::Context as _;
use deadpool_postgres::{Manager, Pool, Runtime};
use posthaste_console::{Access, Role, Settings, router};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL names the database")?;
    let manager = Manager::new(url.parse()?, tokio_postgres::NoTls);
    let pool = Pool::builder(manager)
        .max_size(4)
        .runtime(Runtime::Tokio1)
        .build()?;
    let settings = Settings {
        role: match std::env::var_os("OBSERVER") {
            Some(_) => Role::Observer,
            None => Role::Operator,
        },
        access: std::env::var("TOKEN").map_or(Access::Loopback, Access::Token),
        ..Settings::default()
    };
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(listen).await?;
    tracing::info!(address = %listener.local_addr()?, "the console is there");
    let console = router(pool, settings).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, console).await?;
    Ok(())
}
