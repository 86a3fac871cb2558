//! Jobs and queues from the command line.

use serde_json::Value;

use crate::stage::{self, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_shown_cancelled_and_sent_to_work_again() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let run = async |arguments: &[&str]| stage.run_on(&database, arguments).await;
    run(&["enqueue", "mail.send", r#"{"to": 7}"#, "--queue", "mail"])
        .await?
        .good()?;
    run(&["enqueue", "other"]).await?.good()?;

    let listed = run(&["jobs", "list", "--name", "mail.send"])
        .await?
        .good()?;
    assert!(
        listed.contains("mail.send") && listed.contains("claimable"),
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
    let gone = run(&["jobs", "cancel", "999999"]).await?;
    assert_eq!(gone.code, Some(1));
    assert_eq!(gone.err, "error: 1 of 1 jobs could not be found.");
    let unknown = run(&["jobs", "show", "999999"]).await?.failure()?;
    assert_eq!(
        unknown,
        "error: job 999999 is done, or there never was one."
    );
    let nothing = run(&["jobs", "redrive"]).await?;
    assert_eq!(nothing.code, Some(2), "all of them only when that is said");
    assert_eq!(
        run(&["jobs", "redrive", "--state", "cancelled"])
            .await?
            .good()?
            .trim(),
        "1 job is sent to work again"
    );
    assert_eq!(
        run(&["jobs", "redrive", &id]).await?.good()?.trim(),
        "no kept job is so"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_paused_resumed_and_limited() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let run = async |arguments: &[&str]| stage.run_on(&database, arguments).await;
    for (arguments, said) in [
        (["queues", "pause", "mail"], "queue mail is paused"),
        (["queues", "pause", "mail"], "queue mail was paused already"),
        (["queues", "resume", "mail"], "queue mail is worked"),
        (["queues", "resume", "mail"], "queue mail was not paused"),
    ] {
        assert_eq!(run(&arguments).await?.good()?.trim(), said);
    }
    for (arguments, said) in [
        (
            &["queues", "limit", "mail", "90/m", "--burst", "3"][..],
            "queue mail: at most 90 jobs in 60 s, 3 at once",
        ),
        (
            &["queues", "list"],
            "queue mail is worked, at most 90 jobs in 60 s, 3 at once",
        ),
        (
            &["queues", "limit", "mail", "none"],
            "queue mail has no limit",
        ),
        (&["queues", "list"], "queue mail is worked"),
    ] {
        assert_eq!(run(arguments).await?.good()?.trim(), said);
    }
    let refused = run(&["queues", "limit", "mail", "often"]).await?;
    assert_eq!(refused.code, Some(2));
    Ok(())
}
