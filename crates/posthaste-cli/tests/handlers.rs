//! `work --exec` and `work --http`: processes that are stopped and killed.

mod deployed;
mod frozen;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post;
use posthaste_testkit::{Child, Sql as _, TestDb, eventually, is_alive, number};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_postgres::Client;

use crate::stage::{self, BOUND, Stage};
use crate::tls;

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// A proxy that the environment configures cannot reach the loopback interface.
const NO_PROXY: (&str, &str) = ("NO_PROXY", "127.0.0.1");
/// A script that reports its process id and that of its child, and then runs for long.
const LONG: &str = "sleep 600 & echo $$ $! >pids.new; mv pids.new pids; wait";

fn script(stage: &Stage, text: &str) -> anyhow::Result<()> {
    let file = stage.write("command.new", &format!("#!/bin/sh\n{text}\n"))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    Ok(fs::rename(file, stage.folder.join("command"))?)
}

/// Returns the process ids that the script reported.
async fn pids(stage: &Stage) -> anyhow::Result<Vec<u32>> {
    let file = stage.folder.join("pids");
    eventually(BOUND, "the command runs", async || Ok(file.exists())).await?;
    let text = fs::read_to_string(file)?;
    let pids = text.split_whitespace().map(str::parse);
    let pids: Vec<u32> = pids.collect::<Result<_, _>>()?;
    anyhow::ensure!(pids.len() == 2 && pids.iter().all(|pid| is_alive(*pid)));
    Ok(pids)
}

async fn gone(pids: &[u32]) -> anyhow::Result<()> {
    eventually(BOUND, "the command and its child are gone", async || {
        Ok(!pids.iter().any(|pid| is_alive(*pid)))
    })
    .await
}

async fn put(client: &Client, name: &str) -> anyhow::Result<()> {
    let insert = r#"INSERT INTO posthaste.job (name, kwargs) VALUES ($1, '{"to": 7}')"#;
    client.execute(insert, &[&name]).await?;
    Ok(())
}

async fn done(client: &Client) -> anyhow::Result<()> {
    eventually(BOUND, "the jobs are done", async || {
        Ok(number(client, "SELECT count(*) FROM posthaste.job").await? == 0)
    })
    .await
}

/// Starts a worker with this environment and waits until it is ready.
async fn work(
    stage: &Stage,
    database: &TestDb,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> anyhow::Result<Child> {
    let mut command = stage.command(&["work", "--rescue-after", "3", "--grace", "0"]);
    command.args(arguments).env("DATABASE_URL", database.url());
    for (name, value) in environment {
        command.env(name, value);
    }
    let mut worker = Child::spawn(&mut command)?;
    worker.error_line("working on", BOUND).await?;
    Ok(worker)
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_their_children_end_with_a_killed_worker() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    script(&stage, LONG)?;
    let mut worker = work(&stage, &database, &["--exec", "long.*=./command"], &[]).await?;
    put(&client, "long.one").await?;
    let killed = pids(&stage).await?;
    assert!(worker.kill()?.code().is_none());
    gone(&killed).await?;

    script(&stage, "exit 0")?;
    let mut next = work(&stage, &database, &["--exec", "long.*=./command"], &[]).await?;
    done(&client).await?;
    next.terminate()?;
    assert!(next.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_being_started_end_with_a_killed_worker() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    script(&stage, "echo $$ >>begun; sleep 600")?;
    client
        .run("INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, 500)")
        .await?;
    for kill in 1..=5 {
        let arguments = ["--exec", "x=./command", "--queue", "default=100"];
        let mut worker = work(&stage, &database, &arguments, &[]).await?;
        let begun = stage.folder.join("begun");
        eventually(BOUND, "some have begun", async || {
            Ok(fs::read_to_string(&begun)?.lines().count() >= kill * 10)
        })
        .await?;
        assert!(worker.kill()?.code().is_none());
        eventually(BOUND, "nobody is at home in the folder", async || {
            Ok(residents(&stage)? == 0)
        })
        .await?;
        fs::remove_file(&begun)?;
    }
    Ok(())
}

/// Counts the processes whose current folder is that of the stage.
fn residents(stage: &Stage) -> anyhow::Result<usize> {
    let homes = fs::read_dir("/proc")?.flatten();
    let homes = homes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    Ok(homes.filter(|home| *home == stage.folder).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_guard_process_is_replaced_at_the_next_command() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    script(&stage, LONG)?;
    let mut worker = work(&stage, &database, &["--exec", "*=./command"], &[]).await?;
    put(&client, "first").await?;
    let first = pids(&stage).await?;
    let guard = guard_of(worker.pid())?;
    let guard = rustix::process::Pid::from_raw(guard.cast_signed()).unwrap();
    rustix::process::kill_process(guard, rustix::process::Signal::KILL)?;
    eventually(BOUND, "the guard is gone", async || {
        Ok(!is_alive(guard.as_raw_nonzero().get().cast_unsigned()))
    })
    .await?;
    fs::remove_file(stage.folder.join("pids"))?;
    put(&client, "second").await?;
    let second = pids(&stage).await?;
    worker.kill()?;
    gone(&[first, second].concat()).await
}

/// Returns the process that guards the worker's commands.
fn guard_of(worker: u32) -> anyhow::Result<u32> {
    for entry in fs::read_dir("/proc")? {
        let folder = entry?.path();
        let line = fs::read(folder.join("cmdline")).unwrap_or_default();
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        if status.contains(&format!("PPid:\t{worker}\n"))
            && String::from_utf8_lossy(&line).contains("posthaste-guard")
        {
            let pid = folder.file_name().and_then(|name| name.to_str());
            return Ok(pid.unwrap_or_default().parse()?);
        }
    }
    anyhow::bail!("no guard")
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_a_worker_process_releases_the_job_and_ends_its_command() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    script(&stage, LONG)?;
    let mut worker = work(&stage, &database, &["--exec", "long=./command"], &[]).await?;
    put(&client, "long").await?;
    let running = pids(&stage).await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    gone(&running).await?;
    let row = client
        .query_one("SELECT state, attempt FROM posthaste.job", &[])
        .await?;
    let found: (&str, i32) = (row.get(0), row.get(1));
    assert_eq!(found, ("available", 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_receive_their_arguments_and_no_database_credentials() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    script(
        &stage,
        "{ echo \"words: $*\"; env; cat; } >input.new; mv input.new input",
    )?;
    let secrets = [
        ("PGPASSWORD", "geheim"),
        ("PGSSLKEY", "geheim"),
        ("POSTHASTE_WEBHOOK_SECRET", "geheim"),
        ("KEPT", "plain"),
    ];
    let exec = ["--exec", "mail.*=./command -v  twice"];
    let mut worker = work(&stage, &database, &exec, &secrets).await?;
    put(&client, "mail.send").await?;
    done(&client).await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    let output = fs::read_to_string(stage.folder.join("input"))?;
    assert!(output.starts_with("words: -v twice\n"), "{output}");
    assert!(output.ends_with("{\"to\": 7}\n"), "{output}");
    for there in ["KEPT=plain\n", "POSTHASTE_JOB_NAME=mail.send\n"] {
        assert!(output.contains(there), "{output}");
    }
    for absent in ["DATABASE_URL", "geheim", "PGSSLKEY"] {
        assert!(!output.contains(absent), "{output}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_signed_and_the_secret_is_never_shown() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let seen: Arc<Mutex<Vec<(HeaderMap, String)>>> = Arc::default();
    let keep = Arc::clone(&seen);
    let answer = post(async move |headers: HeaderMap, body: String| {
        keep.lock().unwrap().push((headers, body));
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("index.*=http://ann:geheim@{}/index", listener.local_addr()?);
    let routes = Router::new().route("/index", answer);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let file = stage.write("secret", &format!("{SECRET}\n"))?;
    let arguments = ["--http", &url, "--secret-file", &file.display().to_string()];
    let loud = [("POSTHASTE_LOG", "trace"), NO_PROXY];
    let mut worker = work(&stage, &database, &arguments, &loud).await?;
    put(&client, "index.document").await?;
    done(&client).await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    let seen = seen.lock().unwrap();
    let (headers, body) = &seen[0];
    standardwebhooks::Webhook::new(SECRET)?.verify(body.as_bytes(), headers)?;
    assert_eq!(body, "{\"to\": 7}");
    let output = [worker.stdout(), worker.stderr()].concat().join("\n");
    assert!(output.contains("connected to"), "it logged: {output}");
    for secret in [&SECRET[6..30], "geheim"] {
        assert!(!output.contains(secret), "{secret} was shown");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_endpoints_need_a_trusted_certificate() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let certificate = stage.write("certificate", &made.cert.pem())?;
    let url = format!("x=https://{}/", serve_tls(&made).await?);
    let mut stranger = work(&stage, &database, &["--http", &url], &[NO_PROXY]).await?;
    put(&client, "x").await?;
    eventually(BOUND, "it was refused", async || {
        let refused = "SELECT count(*) FROM posthaste.job WHERE attempt = 0 \
                       AND last_error LIKE 'cannot connect: invalid peer certificate%'";
        Ok(number(&client, refused).await? == 1)
    })
    .await?;
    stranger.terminate()?;
    assert!(stranger.exit(BOUND).await?.success());
    let certificate = certificate.display().to_string();
    let trusted = [NO_PROXY, ("SSL_CERT_FILE", certificate.as_str())];
    let mut friend = work(&stage, &database, &["--http", &url], &trusted).await?;
    done(&client).await?;
    friend.terminate()?;
    assert!(friend.exit(BOUND).await?.success());
    Ok(())
}

/// Starts a TLS server that answers clients which trust its certificate.
async fn serve_tls(
    made: &rcgen::CertifiedKey<rcgen::KeyPair>,
) -> anyhow::Result<std::net::SocketAddr> {
    let acceptor = tls::acceptor(made)?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // A client that does not trust it disconnects.
            let Ok(mut socket) = acceptor.accept(socket).await else {
                continue;
            };
            let mut asked = Vec::new();
            while !asked.ends_with(br#"{"to": 7}"#) {
                anyhow::ensure!(socket.read_buf(&mut asked).await? > 0, "it hung up");
            }
            let yes = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            socket.write_all(yes).await?;
            socket.shutdown().await?;
        }
        anyhow::Ok(())
    });
    Ok(address)
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_a_worker_without_handlers_naming_the_option() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    for arguments in [&["work"][..], &["work", "--queue", "mail"]] {
        let output = stage.run(arguments).await?;
        let line = "error: posthaste work needs a handler. Give --exec NAME=COMMAND, which runs a \
                    command for each job of this name, or --http NAME=URL, which posts each job \
                    there; '*' matches every name.";
        assert_eq!((output.code, output.err.as_str()), (Some(2), line));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_serve_only_the_default_queue_unless_configured() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let put = "INSERT INTO posthaste.job (name, queue) VALUES ('x', 'file'), ('x', 'default')";
    client.run(put).await?;
    let mut worker = work(&stage, &database, &["--exec", "x=true"], &[]).await?;
    let of_default = "SELECT count(*) FROM posthaste.job WHERE queue = 'default'";
    eventually(BOUND, "that of default is done", async || {
        Ok(number(&client, of_default).await? == 0)
    })
    .await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    let stderr = worker.stderr().join("\n");
    assert!(stderr.contains("working on queue default;"), "{stderr}");
    let left = client
        .query_one("SELECT queue, state FROM posthaste.job", &[])
        .await?;
    let left: (&str, &str) = (left.get(0), left.get(1));
    assert_eq!(left, ("file", "available"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_settings_fail_at_startup() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    stage.write("plain", "text")?;
    stage.write("secret", "swordfish")?;
    stage.write("empty", "\n")?;
    let place = stage.folder.display().to_string();
    let http = "x=http://127.0.0.1:1/";
    for (arguments, line) in [
        (
            &["--exec", "x=./absent"][..],
            format!("error: --exec x: cannot run the command {place}/absent: no such file"),
        ),
        (
            &["--exec", "x=./plain"],
            format!("error: --exec x: cannot run the command {place}/plain: it is not executable"),
        ),
        (
            &["--exec", "x=absent-4711 word"],
            "error: --exec x: no command absent-4711 is on PATH. Write its path, \
             such as ./absent-4711."
                .into(),
        ),
        (
            &["--exec", "x=sh", "--http", http],
            "error: two handlers for x. Give one.".into(),
        ),
        (
            &["--http", "x=geheim"],
            "error: --http x: url: must be http://host/path or https://host/path".into(),
        ),
        (
            &["--http", http, "--secret-file", "secret"],
            "error: secret: secret: must be whsec_ and base64 of 24 to 64 random bytes".into(),
        ),
        (
            &["--http", http, "--secret-file", "empty"],
            "error: empty contains no secret. Add one per line: whsec_ followed by 24 to 64 \
             random bytes in base64."
                .into(),
        ),
        (
            &["--http", http, "--secret-file", "nowhere"],
            "error: nowhere: no such file or directory".into(),
        ),
    ] {
        let arguments = [&["work"], arguments].concat();
        let output = stage.run_on(&database, &arguments).await?.failure()?;
        assert_eq!(output, line);
    }
    Ok(())
}
