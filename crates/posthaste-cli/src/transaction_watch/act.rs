//! Acts on a transaction: records the intended step, executes it in a statement that checks the
//! transaction again, and records the result.

use std::time::SystemTime;

use anyhow::{bail, ensure};
use deadpool_postgres::Client;
use posthaste::HolderKind;
use posthaste_observe::transactions::{Decision, HolderKey, Outcome, Step, transaction_sentence};
use tokio_postgres::types::Type;

use crate::failure;

/// Logs a step and its result.
pub(super) fn log_step(decision: &Decision<'_>, outcome: &Outcome) {
    let seen = decision.seen;
    let holder = transaction_sentence(seen);
    let waited = decision.age.as_secs();
    let statement = seen.holder.query.as_deref();
    let (action, result) = (decision.step.as_str(), outcome.as_str());
    match (decision.step, outcome) {
        (Step::Warn, _) => tracing::warn!(
            holder,
            waited,
            statement,
            "a transaction has been open for too long"
        ),
        (_, Outcome::DryRun) => tracing::warn!(
            holder,
            waited,
            statement,
            action,
            "dry run: txwatch would act on a transaction"
        ),
        _ => tracing::warn!(
            holder,
            waited,
            statement,
            action,
            outcome = result,
            "txwatch acted on a transaction"
        ),
    }
}

/// Fails if this server is not a primary, or if the role lacks the rights for acting.
pub(super) async fn check_rights(client: &Client, acts: bool) -> anyhow::Result<()> {
    let row = client
        .query_typed_one(include_str!("rights.sql"), &[])
        .await?;
    ensure!(
        !row.try_get::<_, bool>("is_follower")?,
        "DATABASE_URL leads to a follower. Give the primary's address there, and followers in \
         [txwatch]."
    );
    if !acts {
        return Ok(());
    }
    if !row.try_get::<_, bool>("may_record")? {
        bail!(
            "this role may not record actions in posthaste.txwatch_action. Run 'posthaste migrate \
             --roles' as the owner, and GRANT pg_signal_backend TO it."
        );
    }
    ensure!(
        row.try_get::<_, bool>("may_signal")?,
        "this role may not cancel or terminate the sessions of others. GRANT pg_signal_backend TO \
         it, or set act = false."
    );
    Ok(())
}

/// Acquires the lock that lets one process act at a time; it ends with the session.
pub(super) async fn acquire_lock(client: &Client) -> anyhow::Result<()> {
    let sql = "SELECT pg_catalog.pg_try_advisory_lock(1885893482, 0)";
    let row = client.query_typed_one(sql, &[]).await?;
    ensure!(
        row.try_get::<_, bool>(0)?,
        "another txwatch acts on this database"
    );
    client.query_typed(include_str!("forget.sql"), &[]).await?;
    Ok(())
}

/// Reads the steps of earlier processes.
pub(super) async fn read_past_steps(client: &Client) -> anyhow::Result<Vec<(HolderKey, Step)>> {
    let rows = client.query_typed(include_str!("past.sql"), &[]).await?;
    let read = rows.iter().map(|row| {
        let step = match row.try_get("action")? {
            "warn" => Step::Warn,
            "cancel" => Step::Cancel,
            _ => Step::Terminate,
        };
        let key = HolderKey {
            server: row.try_get("server")?,
            pid: row.try_get("pid")?,
            name: row.try_get("name")?,
            start: row.try_get("transaction_start")?,
        };
        Ok((key, step))
    });
    Ok(read.collect::<Result<_, tokio_postgres::Error>>()?)
}

pub(super) async fn execute_step(
    recorder: &Client,
    server: &Client,
    decision: &Decision<'_>,
) -> Outcome {
    let number = match record_step(recorder, decision).await {
        Ok(number) => number,
        Err(error) => return Outcome::Failed(error_line(error)),
    };
    let outcome = match decision.step {
        Step::Warn => Outcome::Done,
        Step::Cancel => signal_session(server, decision, include_str!("cancel.sql")).await,
        Step::Terminate => signal_session(server, decision, include_str!("terminate.sql")).await,
    };
    let finished = recorder
        .execute_typed(
            include_str!("finish.sql"),
            &[(&number, Type::INT8), (&outcome.as_str(), Type::TEXT)],
        )
        .await;
    if let Err(error) = finished {
        let error = error_line(error.into());
        tracing::warn!(error, "txwatch could not record the result of an action");
    }
    outcome
}

fn error_line(error: anyhow::Error) -> String {
    failure::error_line(&error)
}

async fn signal_session(server: &Client, decision: &Decision<'_>, sql: &str) -> Outcome {
    let holder = &decision.seen.holder;
    let signalled = server
        .query_typed(
            sql,
            &[
                (&holder.pid, Type::INT4),
                (&holder.backend_start, Type::TIMESTAMPTZ),
                (&holder.transaction_start, Type::TIMESTAMPTZ),
            ],
        )
        .await;
    match signalled {
        Err(error) => Outcome::Refused(error_line(error.into())),
        Ok(rows) => match rows.first().map(|row| row.try_get(0)) {
            Some(Ok(true)) => Outcome::Done,
            Some(Err(error)) => Outcome::Refused(error_line(error.into())),
            _ => Outcome::Gone,
        },
    }
}

async fn record_step(recorder: &Client, decision: &Decision<'_>) -> anyhow::Result<i64> {
    let (seen, holder) = (decision.seen, &decision.seen.holder);
    let kind = match holder.kind {
        HolderKind::Prepared => "prepared",
        HolderKind::Replica => "replica",
        HolderKind::Slot => "slot",
        _ => "session",
    };
    let action = decision.step.as_str();
    let start: Option<SystemTime> = holder.transaction_start;
    let rule = i32::try_from(decision.rule)?;
    let pid = seen.key().pid;
    let row = recorder
        .query_typed_one(
            include_str!("record.sql"),
            &[
                (&seen.server, Type::TEXT),
                (&kind, Type::TEXT),
                (&pid, Type::INT4),
                (&holder.backend_start, Type::TIMESTAMPTZ),
                (&start, Type::TIMESTAMPTZ),
                (&holder.name, Type::TEXT),
                (&holder.role, Type::TEXT),
                (&holder.application, Type::TEXT),
                (&holder.address, Type::TEXT),
                (&holder.database, Type::TEXT),
                (&holder.state, Type::TEXT),
                (&holder.seconds, Type::FLOAT8),
                (&action, Type::TEXT),
                (&rule, Type::INT4),
                (&holder.query, Type::TEXT),
            ],
        )
        .await?;
    Ok(row.try_get(0)?)
}
