//! Commands in a container and in a rolling deployment.

use std::fs;
use std::process::Command;

use posthaste_testkit::{Child, Sql as _, eventually, number};

use super::{done, put, script, work};
use crate::stage::{self, BOUND, Stage};

/// Returns the zombie children of a process, and the others.
fn children(parent: u32) -> anyhow::Result<(Vec<u32>, Vec<u32>)> {
    let (mut ended, mut alive) = (Vec::new(), Vec::new());
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        // The process may end before it is read.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let mut fields = fields.split(' ');
        let (state, of) = (fields.next(), fields.next());
        if of == Some(&parent.to_string()) {
            match state {
                Some("Z") => ended.push(pid),
                _ => alive.push(pid),
            }
        }
    }
    Ok((ended, alive))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_running_as_pid_1_reaps_orphans() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    script(&stage, "sleep 600 & (sleep 600 &); exit 0")?;
    let work = stage.command(&["work", "--exec", "x=./command", "--grace", "1"]);
    let mut command = Command::new("unshare");
    if !rustix::process::getuid().is_root() {
        command.args(["--map-root-user"]);
    }
    command
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .arg(work.get_program())
        .args(work.get_args())
        .current_dir(&stage.folder)
        .env("DATABASE_URL", database.url());
    let mut outer = Child::spawn(&mut command)?;
    outer.error_line("working on", BOUND).await?;
    let (_, first) = children(outer.pid())?;
    let [first] = first[..] else {
        anyhow::bail!("unshare has children {first:?}");
    };
    let client = database.client().await?;
    for _ in 0..20 {
        put(&client, "x").await?;
    }
    done(&client).await?;
    eventually(BOUND, "nothing is left that nobody waits for", async || {
        let (ended, alive) = children(first)?;
        let mut within = Vec::new();
        for pid in &alive {
            within.extend(children(*pid)?.0);
        }
        Ok(ended.is_empty() && within.is_empty())
    })
    .await?;
    let killed = Command::new("kill").arg(first.to_string()).status()?;
    anyhow::ensure!(killed.success(), "{killed}");
    assert_eq!(outer.exit(BOUND).await?.code(), Some(0));
    let stderr = outer.stderr().join("\n");
    assert!(stderr.contains("stopping gracefully"), "{stderr}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_deploys_log_once_per_unknown_job_name() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let enqueue = "SELECT count(posthaste.enqueue('new.' || i % 2, '{}'))
                   FROM generate_series(1, 400) AS i";
    client.run(enqueue).await?;
    let mut worker = work(&stage, &database, &["--exec", "x=true"], &[]).await?;
    let waiting = "SELECT count(*) FROM posthaste.job WHERE last_error LIKE '%no handler%'";
    eventually(BOUND, "all wait", async || {
        Ok(number(&client, waiting).await? == 400)
    })
    .await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    let stderr = worker.stderr();
    let lines = stderr
        .iter()
        .filter(|line| line.contains("no handler knows"));
    assert_eq!(lines.count(), 2, "{stderr:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unstartable_commands_are_logged_once_a_minute() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    script(&stage, "exit 0")?;
    let mut worker = work(&stage, &database, &["--exec", "x=./command"], &[]).await?;
    fs::remove_file(stage.folder.join("command"))?;
    for _ in 0..20 {
        put(&client, "x").await?;
    }
    let waiting =
        "SELECT count(*) FROM posthaste.job WHERE last_error LIKE 'cannot run the command%'";
    eventually(BOUND, "all wait", async || {
        Ok(number(&client, waiting).await? == 20)
    })
    .await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    let stderr = worker.stderr();
    let lines = stderr
        .iter()
        .filter(|line| line.contains("jobs could not be started"));
    assert_eq!(lines.count(), 1, "{stderr:?}");
    Ok(())
}
