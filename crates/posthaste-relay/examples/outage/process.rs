//! The other processes of a run: this program in other roles, and the common parts of its web
//! services.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use deadpool_postgres::{Manager, Pool};
use posthaste_testkit::Child;
use tokio::net::TcpListener;
use tokio_postgres::NoTls;

pub const SOON: Duration = Duration::from_secs(60);
/// How long requests may continue after the service was asked to end.
const GRACE: Duration = Duration::from_secs(10);
/// The number of a service's database connections.
const CONNECTIONS: usize = 8;

/// Returns this program in another role.
pub fn role(play: &str, role: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([play, role]);
    Ok(command)
}

/// Returns the address of a service that was just started.
pub async fn address(service: &mut Child) -> Result<String> {
    let error = service.line("listens at ", SOON).await?;
    Ok(error.trim_start_matches("listens at ").to_owned())
}

/// Ends a child cleanly.
pub async fn end(child: &mut Child) -> Result<()> {
    child.terminate()?;
    let status = child.exit(SOON).await?;
    ensure!(status.success(), "{status}: {:?}", child.stderr());
    Ok(())
}

/// Returns connections to the database of the run.
pub fn pool() -> Result<Pool> {
    let manager = Manager::new(std::env::var("DATABASE_URL")?.parse()?, NoTls);
    Ok(Pool::builder(manager).max_size(CONNECTIONS).build()?)
}

/// Serves until it is stopped. Then it accepts no more requests, and finishes the pending ones.
pub async fn serve(routes: Router) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let signal = posthaste::signal();
    println!("listens at {}", listener.local_addr()?);
    let (told, ending) = tokio::sync::oneshot::channel();
    let serving = axum::serve(listener, routes).with_graceful_shutdown(async {
        let _ = signal.await;
        let _ = told.send(());
    });
    let too_long = async {
        let _ = ending.await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! { served = serving => served?, () = too_long => {} }
    Ok(())
}

/// The error that a user gets when an annotation could not be saved.
pub struct Failed(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.0.to_string()).into_response()
    }
}
