use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, connect, eventually, number};

use crate::stage::{self, Stage};

/// A password that no output may contain.
const SECRET: &str = "geheim+4711";

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_servers_are_reported_in_one_line_with_a_remedy() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let port = free_port()?;
    let url = format!("postgres://ann:{SECRET}@127.0.0.1:{port}/app");
    for arguments in [
        &["status"][..],
        &["migrate"],
        &["work", "--exec", "x=true"],
        &["up"],
        &["demo", "--once"],
        &["jobs", "enqueue", "x"],
    ] {
        let line = stage.run_with_url(&url, arguments).await?.failure()?;
        assert_eq!(
            line,
            format!(
                "error: cannot connect to Postgres at 127.0.0.1:{port}: connection refused. Start \
                 it, or unset DATABASE_URL to use a private Postgres."
            )
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_urls_are_rejected_without_repeating_them() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let way_out = "Write postgres://user:password@host:5432/database.";
    let not_one = format!(
        "error: DATABASE_URL: the URL of the database is not a Postgres address. {way_out}"
    );
    let no_host = format!("error: DATABASE_URL: the URL of the database names no host. {way_out}");
    for (url, line) in [
        (SECRET.to_owned(), &not_one),
        (format!("password={SECRET} {SECRET}=x host=h"), &not_one),
        (format!("postgres://ann:{SECRET}@/app"), &no_host),
    ] {
        assert_eq!(
            &stage.run_with_url(&url, &["status"]).await?.failure()?,
            line,
            "{url}"
        );
    }
    let bad_port = format!("postgres://ann:{SECRET}@127.0.0.1:port/app");
    assert_eq!(
        stage
            .run_with_url(&bad_port, &["status"])
            .await?
            .failure()?,
        format!(
            "error: DATABASE_URL: the URL of the database is not a Postgres address (invalid value \
             for option `port`). {way_out}"
        )
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn server_rejections_name_what_to_correct() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::empty_database().await?;
    let place = database
        .url()
        .split(['@', '/'])
        .nth(3)
        .unwrap_or_default()
        .to_owned();
    let absent = format!("postgres://postgres:{SECRET}@{place}/absent");
    assert_eq!(
        stage.run_with_url(&absent, &["status"]).await?.failure()?,
        format!(
            "error: Postgres at {place} has no database \"absent\". Create it (createdb absent), \
             or correct DATABASE_URL."
        )
    );
    let stranger = format!("postgres://stranger:{SECRET}@{place}/postgres");
    assert_eq!(
        stage
            .run_with_url(&stranger, &["status"])
            .await?
            .failure()?,
        format!(
            "error: Postgres at {place} refused user \"stranger\": role \"stranger\" does not \
             exist. Correct user and password in DATABASE_URL."
        )
    );
    let line = stage.run_on(&database, &["status"]).await?.failure()?;
    assert_eq!(
        line,
        "error: posthaste is not installed in this database; run 'posthaste migrate'"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_are_reported_but_not_shown() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let mut worker = stage.spawn(&["up", "--json"])?;
    worker.error_line("jobs will wait", stage::BOUND).await?;
    let url = std::fs::read_to_string(stage.private("url"))?;
    let place = url.trim().split(['@', '/']).nth(3).unwrap_or_default();
    let wrong = format!("postgres://posthaste:{SECRET}@{place}/posthaste");
    assert_eq!(
        stage.run_with_url(&wrong, &["status"]).await?.failure()?,
        format!(
            "error: Postgres at {place} refused user \"posthaste\": password authentication failed \
             for user \"posthaste\". Correct user and password in DATABASE_URL."
        )
    );
    worker.terminate()?;
    assert!(worker.exit(stage::BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_arguments_exit_with_2_and_one_line() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    for (arguments, line) in [
        (
            &["demo", "--onse"][..],
            "error: unexpected argument '--onse' found. A similar argument exists: '--once'. \
             Try 'posthaste demo --help'.",
        ),
        (
            &["jobs", "enqueue"],
            "error: the following required arguments were not provided: <NAME>. Try 'posthaste \
             jobs enqueue --help'.",
        ),
        (
            &["work", "--queue", "mail=0"],
            "error: invalid value 'mail=0' for '--queue <NAME[=N]>': \"0\" is not a number from 1 \
             to 1000. Try 'posthaste work --help'.",
        ),
    ] {
        let output = stage.run(arguments).await?;
        assert_eq!((output.code, output.err.as_str()), (Some(2), line));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_commands_get_a_suggestion() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    for (typed, line) in [
        (
            "enqueue mail.send",
            "unrecognized subcommand 'enqueue'. Did you mean 'posthaste jobs enqueue'?",
        ),
        (
            "--database-url postgres://h/d search words",
            "unrecognized subcommand 'search'. Did you mean 'posthaste sync search'?",
        ),
        (
            "reindex page --all",
            "unrecognized subcommand 'reindex'. Did you mean 'posthaste sync reindex'?",
        ),
        (
            "relay mail",
            "unrecognized subcommand 'mail'. Did you mean 'posthaste relay run'?",
        ),
        (
            "relay --dry-run --limit 5",
            "unexpected argument '--dry-run' found. Did you mean 'posthaste relay preview'?",
        ),
        (
            "sync --once",
            "unexpected argument '--once' found. Did you mean 'posthaste sync run'?",
        ),
        (
            "audit",
            "unrecognized subcommand 'audit'. Did you mean 'posthaste sync audit' or 'posthaste \
             two-phase audit'?",
        ),
    ] {
        let words: Vec<&str> = typed.split(' ').collect();
        let output = stage.run(&words).await?;
        assert_eq!(
            (output.code, output.err),
            (Some(2), format!("error: {line}"))
        );
    }
    for noun in ["relay", "sync"] {
        let output = stage.run(&[noun]).await?;
        let line = format!("error: a command is missing. Did you mean 'posthaste {noun} run'?");
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(
            output.err.contains("Commands:") && output.err.ends_with(&line),
            "{output:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn help_does_not_show_the_database_url() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let url = format!("postgres://ann:{SECRET}@db/app");
    for arguments in [
        &["--help"][..],
        &["demo", "--help"],
        &["jobs", "enqueue", "--help"],
    ] {
        let help = stage.run_with_url(&url, arguments).await?.good()?;
        assert!(
            help.contains("DATABASE_URL") && !help.contains(SECRET),
            "{help}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_database_url_explains_the_options() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    for arguments in [
        &["status"][..],
        &["work", "--exec", "x=true"],
        &["jobs", "enqueue", "x"],
    ] {
        assert_eq!(
            stage.run(arguments).await?.failure()?,
            "error: no database: DATABASE_URL is not set, and no private Postgres was created \
             here. Set it, or run 'posthaste up' in this folder first."
        );
    }
    let unset = stage.run_with_url("", &["status"]).await?.failure()?;
    assert!(unset.starts_with("error: no database: "), "{unset}");
    assert!(!stage.folder.join(".posthaste").exists());
    Ok(())
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?
        .local_addr()?
        .port())
}

#[tokio::test(flavor = "multi_thread")]
async fn shell_completions_are_generated() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let bash = stage.run(&["completions", "bash"]).await?.good()?;
    let script = stage.write("posthaste.bash", &bash)?;
    for (typed, command) in [("doc", "doctor"), ("dem", "demo")] {
        let completed = std::process::Command::new("bash")
            .args([
                "-c",
                "source \"$0\"; COMP_WORDS=(posthaste $1); COMP_CWORD=1; _posthaste posthaste $1 \
                 posthaste; echo \"${COMPREPLY[@]}\"",
            ])
            .arg(&script)
            .arg(typed)
            .output()?;
        assert_eq!(String::from_utf8(completed.stdout)?.trim(), command);
    }
    let zsh = stage.run(&["completions", "zsh"]).await?.good()?;
    assert!(zsh.starts_with("#compdef posthaste"), "{zsh}");
    let fish = stage.run(&["completions", "fish"]).await?.good()?;
    assert!(fish.contains("complete -c posthaste"), "{fish}");
    assert!(
        !stage.folder.join(".posthaste").exists(),
        "that needs no database"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_has_a_manual_page_with_its_example() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let page = stage.run(&["manual", "jobs", "list"]).await?.good()?;
    for part in [
        ".TH posthaste-jobs-list 1",
        "Example: posthaste jobs list",
        "\\-\\-limit",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let whole = stage.run(&["manual"]).await?.good()?;
    assert!(
        whole.contains(".TH posthaste 1") && whole.contains("Exit codes"),
        "{whole}"
    );
    let unknown = stage.run(&["manual", "jobs", "lsit"]).await?.failure()?;
    assert!(
        unknown.contains("no command is named 'posthaste jobs lsit'"),
        "{unknown}"
    );
    let help = stage.run(&["jobs", "list", "--help"]).await?.good()?;
    assert!(help.contains("Example: posthaste jobs list"), "{help}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn help_separates_the_demo_from_real_commands() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let help = stage.run(&["--help"]).await?.good()?;
    for (command, about) in [
        ("up", "Run everything: a private Postgres"),
        ("demo", "Run posthaste on real input"),
        ("work", "Run jobs with commands (--exec) or HTTP requests"),
    ] {
        let mut lines = help.lines().map(str::trim);
        let line = lines.find(|line| line.split(' ').next() == Some(command));
        assert!(line.is_some_and(|line| line.contains(about)), "{help}");
    }
    let hidden = help.lines().any(|line| line.trim().starts_with("load"));
    assert!(!hidden, "{help}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_match_the_help_and_the_docs() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let help = stage.run(&["--help"]).await?.good()?;
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
    let page = std::fs::read_to_string(page)?;
    let meanings = ["success", "failure", "invalid", "problems"];
    for (code, meaning) in meanings.iter().enumerate() {
        assert!(help.contains(&format!("{code} {meaning}")), "{help}");
        assert!(page.contains(&format!("| {code} | ")), "{code} is missing");
    }
    assert_eq!(
        stage.run(&["doctor", "--older-than", "long"]).await?.code,
        Some(2)
    );
    assert_eq!(
        stage.run(&["doctor"]).await?.code,
        Some(1),
        "there is no database here"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_on_a_replica_point_to_the_primary() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let server = PgServer::start(PgVersion::any(), &[])?;
    let database = TestDb::empty(&server).await?;
    stage
        .run_with_url(database.url(), &["migrate"])
        .await?
        .good()?;
    let file = "[route.r]\nqueue = 'r'\nto = 'stdout:'\n[sync.page]\ntable = 'page'\n\
                index = 'postgres:'\ndocument = { id = 'id' }\n";
    stage.write("posthaste.toml", file)?;
    let primary = database.client().await?;
    let table = "CREATE TABLE page (id bigint PRIMARY KEY); INSERT INTO page VALUES (1)";
    primary.run(table).await?;
    let install = stage.run_with_url(database.url(), &["sync", "install"]);
    install.await?.good()?;
    let replica = server.start_replica(&[])?;
    let follower = connect(&replica.url(database.name())).await?;
    eventually(stage::BOUND, "the sync is there", async || {
        let synced = "SELECT count(*) FROM posthaste.synced";
        Ok(number(&follower, synced).await.is_ok_and(|syncs| syncs > 0))
    })
    .await?;
    for arguments in [
        &["jobs", "enqueue", "x"][..],
        &["work", "--queue", "default", "--exec", "x=/bin/true"],
        &["migrate"],
        &["rebase"],
        &["adopt"],
        &["queues", "pause", "q"],
        &["queues", "limit", "q", "5/s"],
        &["queues", "keep", "q", "1h"],
        &["jobs", "cancel", "1"],
        &["jobs", "retry", "1"],
        &["jobs", "redrive", "--name", "x"],
        &["relay", "run", "--once"],
        &["relay", "run"],
        &["sync", "run", "--once"],
        &["sync", "install"],
        &["sync", "reindex", "page", "--all"],
        &["sync", "reindex", "page", "--pause"],
        // Rows that the replica has not received would count as deleted.
        &["sync", "audit", "--repair"],
        &["up"],
        &["up", "--exec", "x=/bin/true"],
    ] {
        let output = stage
            .run_with_url(&replica.url(database.name()), arguments)
            .await?;
        let line = output.failure()?;
        assert!(
            line.contains("connect to the primary"),
            "{arguments:?}: {line}"
        );
    }
    Ok(())
}
