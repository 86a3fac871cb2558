//! A web service with axum and sqlx: a request commits an account and its welcome in one
//! transaction, and a worker in the same process does the work. Ctrl-C or SIGTERM ends both in good
//! order. docs/guides/axum-sqlx.md explains it.
//!
//! `DATABASE_URL=postgres://… cargo run -p posthaste --features sqlx --example web`
#![expect(clippy::print_stdout, reason = "an example talks to people")]

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use posthaste::{Context, Database, JobArgs, NewJob, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

/// What requests and handlers share.
#[derive(Clone)]
struct App {
    db: PgPool,
}

#[derive(Deserialize)]
struct SignUp {
    name: String,
}

#[derive(Serialize, Deserialize)]
struct Welcome {
    account: String,
}

impl JobArgs for Welcome {
    const NAME: &'static str = "account.welcome";

    fn options(&self, job: NewJob) -> NewJob {
        job.tag("web").max_attempts(Some(10))
    }
}

async fn sign_up(
    State(app): State<App>,
    Json(sign_up): Json<SignUp>,
) -> Result<StatusCode, Failed> {
    let mut tx = app.db.begin().await?;
    create(&mut tx, sign_up.name).await?;
    tx.commit().await?; // the account and its welcome, or neither
    Ok(StatusCode::CREATED)
}

async fn create(tx: &mut sqlx::PgConnection, account: String) -> anyhow::Result<()> {
    sqlx::query("INSERT INTO account (name) VALUES ($1)")
        .bind(&account)
        .execute(&mut *tx)
        .await?;
    posthaste::enqueue(&mut *tx, Welcome { account }).await?;
    Ok(())
}

async fn welcome(context: Context<App>, welcome: Welcome) -> anyhow::Result<()> {
    let mut tx = context.state().db.begin().await?;
    sqlx::query("UPDATE account SET welcomed = true WHERE name = $1")
        .bind(&welcome.account)
        .execute(&mut *tx)
        .await?;
    context.complete_in(&mut *tx).await?; // the change and the end of the job, or neither
    tx.commit().await?;
    println!("welcome, {}", welcome.account);
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init(); // what the worker warns of
    let db = PgPool::connect_lazy(&std::env::var("DATABASE_URL")?)?;
    posthaste::migrate(&mut *Database::from(&db).client().await?).await?;
    // Programs that start at once make the table one after the other.
    let account = "SELECT pg_advisory_xact_lock(hashtext('account'));
         CREATE TABLE IF NOT EXISTS account (name text PRIMARY KEY, welcomed bool DEFAULT false)";
    sqlx::raw_sql(account).execute(&db).await?;
    let app = App { db };

    let worker = Worker::builder(&app.db)
        .state(app.clone())
        .queue("default", 16)
        .job(welcome)
        .start()
        .await?;
    let routes = Router::new()
        .route("/accounts", post(sign_up))
        .with_state(app);
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let signal = posthaste::signal(); // from here on one ends the process only behind its work
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, routes)
        .with_graceful_shutdown(async { _ = signal.await })
        .await?;
    worker.stop().await?; // after the requests: what they enqueued stays for the next worker
    Ok(())
}

/// An error that the caller only hears of by its status.
struct Failed(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl axum::response::IntoResponse for Failed {
    fn into_response(self) -> axum::response::Response {
        eprintln!("a request failed: {:#}", self.0);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

#[cfg(test)]
mod tests {
    use posthaste::testing::{TestRun, assert_enqueued};

    use super::*;

    async fn app() -> App {
        let url = std::env::var("DATABASE_URL").unwrap();
        let db = PgPool::connect(&url).await.unwrap();
        App { db }
    }

    #[tokio::test]
    async fn signing_up_enqueues_a_welcome_job() {
        let mut tx = app().await.db.begin().await.unwrap();
        create(&mut tx, "Ada".into()).await.unwrap();
        assert_enqueued(&mut *tx, |welcome: &Welcome| welcome.account == "Ada").await;
        // Nothing was committed: the next test finds the database as this one did.
    }

    #[tokio::test]
    async fn welcome_jobs_complete() {
        let app = app().await;
        let account = "Bob".to_owned();
        let run = TestRun::of(Welcome { account }).unwrap().state(app);
        run.call(welcome).await.unwrap();
        assert!(run.is_completed());
    }
}
