use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use posthaste_testkit::{PgVersion, eventually, is_alive, number, ran};
use sha2::{Digest as _, Sha256};

use crate::stage::{self, BOUND, Stage, server_of};
use crate::tree;

const WORK: [&str; 3] = ["work", "--exec", "x=true"];

#[tokio::test(flavor = "multi_thread")]
async fn the_private_server_is_private_durable_and_stops_with_the_command() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    stage.run(&["migrate"]).await?.good()?;
    assert!(
        !stage.private("data/postmaster.pid").exists(),
        "it runs on after the command"
    );
    let mut worker = stage.spawn(&WORK)?;
    worker.error_line("working on", BOUND).await?;
    let server = stage.server()?;
    let client = stage.client().await?;
    for (setting, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("wal_level", "logical"),
        ("max_slot_wal_keep_size", "10GB"),
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
        ("server_encoding", "UTF8"),
    ] {
        let row = client
            .query_one("SELECT current_setting($1)", &[&setting])
            .await?;
        assert_eq!(row.get::<_, &str>(0), value, "{setting}");
    }
    let rules = number(
        &client,
        "SELECT count(*) FROM pg_hba_file_rules WHERE auth_method <> 'scram-sha-256'",
    )
    .await?;
    assert_eq!(rules, 0, "somebody is let in without a password");
    for secret in ["password", "url", "log"] {
        let mode = fs::metadata(stage.private(secret))?.permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{secret}");
    }
    assert_ne!(
        fs::metadata(format!("/proc/{server}"))?.uid(),
        0,
        "it runs as root"
    );
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    assert!(!is_alive(server));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_does_not_reach_the_private_server() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    stage.run(&["migrate"]).await?.good()?;
    let mut worker = stage.spawn(&WORK)?;
    worker.error_line("working on", BOUND).await?;
    let group =
        |pid: u32| rustix::process::getpgid(rustix::process::Pid::from_raw(pid.cast_signed()));
    assert_ne!(group(stage.server()?)?, group(worker.pid())?);
    worker.interrupt()?;
    assert!(worker.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_left_by_a_killed_command_are_adopted_and_stopped() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    stage.run(&["migrate"]).await?.good()?;
    let mut killed = stage.spawn(&WORK)?;
    killed.error_line("working on", BOUND).await?;
    let server = stage.server()?;
    killed.kill()?;
    assert!(is_alive(server), "nobody was left to stop it");
    let mut second = stage.spawn(&WORK)?;
    second.error_line("working on", BOUND).await?;
    assert_eq!(stage.server()?, server, "it was started anew");
    second.terminate()?;
    assert!(second.exit(BOUND).await?.success());
    gone(server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commands_share_the_private_server_and_the_last_one_stops_it() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    // Concurrently in an empty folder: only one of them makes the database.
    let (one, other) = tokio::join!(stage.run(&["migrate"]), stage.run(&["migrate"]));
    one?.good()?;
    other?.good()?;
    let (mut first, mut second) = (stage.spawn(&WORK)?, stage.spawn(&WORK)?);
    first.error_line("working on", BOUND).await?;
    second.error_line("working on", BOUND).await?;
    let server = stage.server()?;
    first.terminate()?;
    assert!(first.exit(BOUND).await?.success());
    assert!(is_alive(server), "the second command still needs it");
    stage.run(&["status"]).await?.good()?;
    second.terminate()?;
    assert!(second.exit(BOUND).await?.success());
    gone(server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_pid_file_of_a_live_foreign_process_is_ignored() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    stage.run(&["migrate"]).await?.good()?;
    // After a reboot any process may have the id. This one runs as the server's user: Postgres
    // itself cannot distinguish it from a server.
    let data = stage.private("data");
    let owner = fs::metadata(&data)?;
    let mut sleep = std::process::Command::new("sleep");
    if owner.uid() != rustix::process::geteuid().as_raw() {
        std::os::unix::process::CommandExt::uid(&mut sleep, owner.uid());
    }
    let mut stranger = posthaste_testkit::Child::spawn(sleep.arg("600").current_dir("/"))?;
    let text = format!(
        "{}\n{}\n1\n1\n\n127.0.0.1\n1 1\nready   \n",
        stranger.pid(),
        data.display()
    );
    fs::write(data.join("postmaster.pid"), text)?;
    stage.run(&["status"]).await?.good()?;
    assert!(is_alive(stranger.pid()), "a stranger was ended");
    stranger.kill()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_private_server_restarts_with_all_committed_data() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    stage.run(&["migrate"]).await?.good()?;
    let mut worker = stage.spawn(&["work", "--queue", "nothing", "--exec", "x=true"])?;
    worker.error_line("working on", BOUND).await?;
    stage.run(&["jobs", "enqueue", "stored"]).await?.good()?;
    let server = stage.server()?;
    worker.kill()?;
    kill_group(server)?;
    eventually(BOUND, "the server is gone", async || Ok(!is_alive(server))).await?;
    assert!(stage.private("data/postmaster.pid").exists());
    let status = stage.run(&["status", "--json"]).await?.good()?;
    assert!(status.contains(r#""default""#), "{status}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_in_use_are_replaced() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    stage.run(&["migrate"]).await?.good()?;
    let port: u16 = fs::read_to_string(stage.private("port"))?.trim().parse()?;
    let taken = std::net::TcpListener::bind(("127.0.0.1", port))?;
    stage.run(&["status"]).await?.good()?;
    let now: u16 = fs::read_to_string(stage.private("port"))?.trim().parse()?;
    assert_ne!(now, port);
    drop(taken);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_initdb_does_not_block_the_next_start() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let mut killed = stage.spawn(&["migrate"])?;
    eventually(BOUND, "initdb is at work", async || {
        let entries = fs::read_dir(stage.folder.join(".posthaste"))?.flatten();
        let mut drafts =
            entries.filter(|entry| entry.path().to_string_lossy().contains("data.new-"));
        let draft = drafts
            .next()
            .map(|draft| fs::read_dir(draft.path()))
            .transpose()?;
        Ok(draft.is_some_and(|mut entries| entries.next().is_some()))
    })
    .await?;
    killed.kill()?;
    assert!(!stage.private("data").exists());
    stage.run(&["migrate"]).await?.good()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_the_server_cannot_access_are_avoided() -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(()); // The server runs as the current user, and no folder is hidden.
    }
    // The name depends on the folder, which does not exist yet: it is removed below.
    let stage = Stage::with_mode(0o700, "")?;
    let path = std::os::unix::ffi::OsStrExt::as_bytes(stage.folder.as_os_str());
    let hash: String = Sha256::digest(path)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let elsewhere = std::path::Path::new("/var/lib/posthaste").join(hash);
    let migrated = stage.run(&["migrate"]).await?;
    let data_is_there = elsewhere.join("data/PG_VERSION").exists();
    let runs_on = server_of(&elsewhere.join("data")).is_ok();
    fs::remove_dir_all(&elsewhere)?;
    migrated.good()?;
    assert!(data_is_there && !runs_on);
    assert!(!stage.folder.join(".posthaste").exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ordinary_users_run_the_private_server_as_themselves() -> anyhow::Result<()> {
    let stage = Stage::unprivileged()?;
    tree::make(&stage.folder.join("files"), 50)?;
    tree::close_one(&stage.folder.join("files"))?;
    let report = stage
        .run(&["demo", "--once", "files", "--json"])
        .await?
        .good()?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    assert_eq!(report["same"], 50);
    assert_eq!(
        report["unreadable"], 1,
        "a file that cannot be read is recorded as such"
    );
    assert_eq!(report["differing"], 0);
    let owner = fs::metadata(stage.private("data"))?.uid();
    assert_eq!(owner, fs::metadata(&stage.folder)?.uid());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_private_server_supports_the_newest_version() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    tree::make(&stage.folder.join("files"), 50)?;
    let bin = PgVersion::V18.bin()?;
    let bin = bin.to_string_lossy();
    let report = stage
        .run(&["demo", "--once", "files", "--json", "--pg-bin", &bin])
        .await?
        .good()?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    assert_eq!(report["same"], 50);
    assert_eq!(
        fs::read_to_string(stage.private("data/PG_VERSION"))?.trim(),
        "18"
    );
    ran::note("pg18");
    let older = PgVersion::V15.bin()?;
    let line = stage
        .run(&["status", "--pg-bin", &older.to_string_lossy()])
        .await?
        .failure()?;
    assert_eq!(
        line,
        format!(
            "error: the private database here was created by Postgres 18, but --pg-bin {} is \
             Postgres 15. Point it at Postgres 18.",
            older.display()
        )
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_without_server_programs_are_reported() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let line = stage
        .run(&["migrate", "--pg-bin", "/nowhere"])
        .await?
        .failure()?;
    assert_eq!(
        line,
        "error: --pg-bin /nowhere contains no Postgres: postgres and initdb are missing. \
         Set it to the bin directory of a Postgres."
    );
    let mut command = stage.command(&["migrate"]);
    command.env("PATH", "/nowhere");
    let output = stage::CommandOutput::by(posthaste_testkit::Child::spawn(&mut command)?).await?;
    // If a package of the machine contains Postgres, it is found without PATH.
    assert!(
        output.code == Some(0) || output.err.contains("no Postgres found"),
        "{output:?}"
    );
    Ok(())
}

/// Waits for the end of a server: one that another process started removes its file a moment before
/// it ends.
async fn gone(server: u32) -> anyhow::Result<()> {
    eventually(BOUND, "the server is gone", async || Ok(!is_alive(server))).await
}

/// Kills a server and all its processes, like a crash of the machine.
fn kill_group(server: u32) -> anyhow::Result<()> {
    let leader = rustix::process::Pid::from_raw(server.cast_signed());
    let leader = leader.ok_or_else(|| anyhow::anyhow!("no server"))?;
    Ok(rustix::process::kill_process_group(
        leader,
        rustix::process::Signal::KILL,
    )?)
}
