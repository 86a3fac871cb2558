//! Jobs and queues from the command line.

use posthaste_testkit::Sql as _;
use serde_json::Value;

use crate::stage::{self, Stage};

const REDRIVABLE: &str = "A job can be redriven while it is kept, if it matches the options and no \
                          other job holds its unique key.";

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_shown_cancelled_and_redriven() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let client = database.client().await?;
    let run = async |arguments: &[&str]| stage.run_on(&database, arguments).await;
    run(&[
        "jobs",
        "enqueue",
        "mail.send",
        r#"{"to": 7}"#,
        "--queue",
        "mail",
    ])
    .await?
    .good()?;
    run(&["jobs", "enqueue", "other"]).await?.good()?;

    let listed = run(&["jobs", "list", "--name", "mail.send"])
        .await?
        .good()?;
    assert!(
        listed.contains("mail.send") && listed.contains("available"),
        "{listed}"
    );
    assert!(!listed.contains("other"), "{listed}");
    let listed: Value = serde_json::from_str(
        &run(&["jobs", "list", "--queue", "mail", "--json"])
            .await?
            .good()?,
    )?;
    let id = listed[0]["id"].to_string();
    let shown: Value = serde_json::from_str(&run(&["jobs", "show", &id, "--json"]).await?.good()?)?;
    assert_eq!(shown["kwargs"]["to"], 7);
    assert!(
        run(&["jobs", "show", &id])
            .await?
            .good()?
            .contains("delivery id")
    );

    assert_eq!(
        run(&["jobs", "cancel", &id]).await?.good()?.trim(),
        format!("job {id} is cancelled")
    );
    // More lanes than one call locks.
    let many = client
        .query(
            "SELECT posthaste.enqueue('many', queue => 'q' || g)::text \
             FROM generate_series(1, 450) g",
            &[],
        )
        .await?;
    let many: Vec<&str> = many.iter().map(|row| row.get(0)).collect();
    let cancelled = run(&[&["jobs", "cancel"], &many[..]].concat())
        .await?
        .good()?;
    let lines = cancelled.lines();
    assert_eq!(
        lines.filter(|line| line.ends_with("is cancelled")).count(),
        450
    );
    client
        .run("DELETE FROM posthaste.dead WHERE name = 'many'")
        .await?;
    let gone = run(&["jobs", "cancel", "999999"]).await?;
    assert_eq!(gone.code, Some(1));
    assert_eq!(gone.err, "error: not found: job 999999.");
    let unknown = run(&["jobs", "show", "999999"]).await?.failure()?;
    assert_eq!(
        unknown,
        "error: job 999999 does not exist, or ended and is no longer kept."
    );
    let later = "SELECT posthaste.enqueue('later', queue => 'q1', \
                 scheduled_at => now() + interval '1 day')::text";
    let later: String = client.one(later).await?;
    let other = run(&["jobs", "retry", &later, "--queue", "q2"]).await?;
    assert_eq!(other.code, Some(1));
    let stays = "stays scheduled: it does not match the options, or is beyond --limit";
    assert!(other.out.contains(stays), "{}", other.out);
    assert_eq!(other.err, format!("error: not changed: job {later}."));
    let dead = "INSERT INTO posthaste.dead (id, died_at, enqueued_at, scheduled_at, expires_at, \
                priority, attempt, kwargs_bytes, crashes, state, queue, name, tag, kwargs) \
                SELECT nextval('posthaste.job_id'), now(), now(), now(), 'infinity', 0, 1, 2, 0, \
                'dead', 'q1', 'n', '', '{}' FROM generate_series(1, 1200) RETURNING id::text";
    let dead = client.query(dead, &[]).await?;
    let dead: Vec<&str> = dead.iter().map(|row| row.get(0)).collect();
    let redriven = run(&[&["jobs", "redrive"], &dead[..]].concat()).await?;
    let sent = "1,200 jobs redriven";
    assert_eq!(redriven.good()?.trim(), sent, "all that were named");
    let again = run(&["jobs", "redrive", dead[0], dead[1]]).await?;
    assert_eq!(
        again.err,
        format!(
            "error: not redriven: jobs {}, {}. {REDRIVABLE}",
            dead[0], dead[1]
        )
    );
    let nothing = run(&["jobs", "redrive"]).await?;
    assert_eq!(nothing.code, Some(2), "changing all jobs needs --all");
    let unknown = run(&["jobs", "list", "--state", "lost"]).await?;
    assert_eq!(unknown.code, Some(2), "there is no such state");
    let waiting = run(&["jobs", "redrive", "--state", "scheduled"]).await?;
    assert_eq!(
        waiting.failure()?,
        "error: state: scheduled is not one of dead, discarded, expired, cancelled"
    );
    assert_eq!(
        run(&["jobs", "redrive", "--state", "cancelled"])
            .await?
            .good()?
            .trim(),
        "1 job redriven"
    );
    assert_eq!(
        run(&["jobs", "redrive", &id]).await?.err,
        format!("error: not redriven: job {id}. {REDRIVABLE}")
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_requires_a_condition() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let run = async |arguments: &[&str]| stage.run_on(&database, arguments).await;
    let client = database.client().await?;
    let jobs = "SELECT posthaste.enqueue('mail.send', tag => 'a') FROM generate_series(1, 3);
                SELECT posthaste.enqueue('mail.send', ordering_key => 'k')
                  FROM generate_series(1, 2);
                SELECT posthaste.enqueue('mail.send', scheduled_at => now() + interval '1 day');
                SELECT posthaste.enqueue('mail.read');
                SELECT posthaste.enqueue('mail.send', queue => 'other')";
    client.run(jobs).await?;
    let all = run(&["jobs", "cancel"]).await?;
    assert_eq!(all.code, Some(2), "changing all jobs needs --all");
    let ended = run(&["jobs", "cancel", "--state", "dead"]).await?;
    assert_eq!(ended.failure()?, "error: dead jobs have already ended.");
    let cancelled = async |conditions: &[&str]| {
        let cancel = [&["jobs", "cancel"][..], conditions].concat();
        let output = run(&cancel).await?.good()?;
        let lines = output.lines().filter(|line| line.ends_with("is cancelled"));
        anyhow::Ok(lines.count())
    };
    let send = ["--name", "mail.send", "--queue", "default"];
    let other = "SELECT id::text FROM posthaste.job WHERE name = 'mail.read'";
    let other: String = client.one(other).await?;
    let of_both = [&["jobs", "cancel", &other][..], &send].concat();
    let unfit = run(&of_both).await?;
    assert_eq!(unfit.code, Some(1), "{unfit:?}");
    assert!(
        unfit.out.contains("does not match, is completed"),
        "{unfit:?}"
    );
    let limited = [&send[..], &["--tag", "a", "--limit", "2"]].concat();
    assert_eq!(cancelled(&limited).await?, 2);
    let scheduled = [&send[..], &["--state", "scheduled"]].concat();
    assert_eq!(cancelled(&scheduled).await?, 1);
    assert_eq!(cancelled(&send).await?, 3, "also what waits for its turn");
    let again = [&["jobs", "cancel"][..], &send].concat();
    assert_eq!(run(&again).await?.good()?.trim(), "no waiting job matches");
    let left = "SELECT name || ' ' || queue FROM posthaste.job WHERE state = 'available'
                 ORDER BY 1";
    let left = client.query(left, &[]).await?;
    let left: Vec<&str> = left.iter().map(|row| row.get(0)).collect();
    assert_eq!(left, ["mail.read default", "mail.send other"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_paused_resumed_and_limited() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let run = async |arguments: &[&str]| stage.run_on(&database, arguments).await;
    for (arguments, expected) in [
        (["queues", "pause", "mail"], "queue mail is paused"),
        (["queues", "pause", "mail"], "queue mail is already paused"),
        (["queues", "resume", "mail"], "queue mail is resumed"),
        (["queues", "resume", "mail"], "queue mail is not paused"),
    ] {
        assert_eq!(run(&arguments).await?.good()?.trim(), expected);
    }
    for (arguments, expected) in [
        (
            &["queues", "limit", "mail", "90/m", "--burst", "3"][..],
            "queue mail: at most 90 jobs per minute, in bursts of up to 3",
        ),
        (
            &["queues", "list"],
            "queue mail is active, at most 90 jobs per minute, in bursts of up to 3",
        ),
        (
            &["queues", "limit", "mail", "none"],
            "queue mail has no limit",
        ),
        (&["queues", "list"], "queue mail is active"),
    ] {
        assert_eq!(run(arguments).await?.good()?.trim(), expected);
    }
    let refused = run(&["queues", "limit", "mail", "often"]).await?;
    assert_eq!(refused.code, Some(2));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_show_lists_failed_attempts_and_jobs_retry_makes_jobs_due() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let run = async |arguments: &[&str]| stage.run_on(&database, arguments).await;
    let client = database.client().await?;
    client
        .run(
            "INSERT INTO posthaste.worker (name) VALUES ('the worker');
             SELECT posthaste.enqueue('mail.send', scheduled_at => now() + interval '1 hour')
               FROM generate_series(1, 3);
             SELECT posthaste.enqueue('other')",
        )
        .await?;
    client
        .run(
            "SELECT posthaste.settle(c.slot, c.batch, t.token, ARRAY[c.id], '{1}', '{1}',
               '{1 hour}', NULL, NULL, '{no route}')
               FROM (SELECT gen_random_uuid() AS token OFFSET 0) t,
                 LATERAL posthaste.claim('default', '{0}', 1, t.token, 1, 1000) c",
        )
        .await?;
    let shown = run(&["jobs", "show", "4"]).await?.good()?;
    let table: Vec<&str> = shown.lines().rev().take(2).collect();
    assert!(
        table[0].contains("retried    the worker  no route"),
        "{shown}"
    );
    assert!(table[1].contains("outcome    worker      error"), "{shown}");
    let shown: Value = serde_json::from_str(&run(&["jobs", "show", "4", "--json"]).await?.good()?)?;
    assert_eq!(shown["state"], "retrying");
    assert_eq!(shown["failures"][0]["attempt"], 1);
    assert_eq!(shown["failures"][0]["worker_name"], "the worker");

    let nothing = run(&["jobs", "retry"]).await?;
    assert_eq!(nothing.code, Some(2), "changing all jobs needs --all");
    let retried = run(&["jobs", "retry", "4", "999999"]).await?;
    assert_eq!(retried.code, Some(1));
    assert_eq!(
        retried.out.trim(),
        "job 4 runs as soon as a worker is free\njob 999999 does not exist, or ended and is no \
         longer kept"
    );
    assert_eq!(retried.err, "error: not found: job 999999.");
    let retried: Value = serde_json::from_str(
        &run(&[
            "jobs", "retry", "--name", "mail.*", "--limit", "2", "--json",
        ])
        .await?
        .good()?,
    )?;
    assert_eq!(retried, serde_json::json!([]), "a name is not a pattern");
    let waiting = ["jobs", "retry", "--name", "mail.send", "--limit", "2"];
    let retried = run(&waiting).await?.good()?;
    assert_eq!(retried.lines().count(), 2, "{retried}");
    run(&["jobs", "cancel", "4"]).await?.good()?;
    assert_eq!(
        run(&["jobs", "retry", "4"]).await?.good()?.trim(),
        "job 4 is already cancelled; redrive it to run it again"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_jobs_are_retained_where_configured() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let run = async |arguments: &[&str]| stage.run_on(&database, arguments).await;
    assert_eq!(
        run(&["queues", "keep", "mail", "24h"])
            .await?
            .good()?
            .trim(),
        "completed jobs of queue mail are kept for 24h"
    );
    assert_eq!(
        run(&["queues", "list"]).await?.good()?.trim(),
        "queue mail is active, completed jobs are kept for 24:00:00"
    );
    let no_time = run(&["queues", "keep", "mail", "soon"]).await?;
    assert_eq!(no_time.code, Some(2));
    assert_eq!(
        run(&["queues", "keep", "mail", "none"])
            .await?
            .good()?
            .trim(),
        "completed jobs of queue mail are not kept"
    );
    assert_eq!(
        run(&["queues", "list"]).await?.good()?.trim(),
        "queue mail is active"
    );
    Ok(())
}
