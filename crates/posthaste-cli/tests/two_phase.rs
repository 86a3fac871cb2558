//! `posthaste two-phase`: documents of a real OpenSearch, without a database.

use posthaste_testkit::elastic::{FakeElastic, Fault};
use posthaste_testkit::ran;
use posthaste_testkit::receivers::{self, OpenSearch, Receiver};
use serde_json::Value;

use crate::stage::{BOUND, CommandOutput, Stage};

/// Commands on separate indexes, if this machine has OpenSearch.
struct Place {
    stage: Stage,
    server: &'static OpenSearch,
}

fn place(test: &str) -> anyhow::Result<Option<Place>> {
    if !receivers::are_here(test, &[Receiver::OpenSearch]) {
        return Ok(None);
    }
    let (stage, server) = (Stage::new()?, OpenSearch::shared()?);
    let url = server.url();
    let file = format!(
        "[two_phase]\nelastic = '{url}'\ndocuments = '{test}-documents'\n\
         transactions = '{test}-transactions'\n"
    );
    stage.write("posthaste.toml", &file)?;
    Ok(Some(Place { stage, server }))
}

/// Runs a command on the server in memory.
async fn at_the_fake(
    stage: &Stage,
    fake: &FakeElastic,
    arguments: &[&str],
) -> anyhow::Result<CommandOutput> {
    let (mut all, url) = (vec!["two-phase"], fake.url());
    all.extend(arguments);
    all.extend(["--elastic", &url]);
    stage.run(&all).await
}

impl Place {
    async fn run(&self, arguments: &[&str]) -> anyhow::Result<CommandOutput> {
        let mut all = vec!["two-phase"];
        all.extend(arguments);
        self.stage.run(&all).await
    }

    async fn json(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let mut all = vec!["--json", "two-phase"];
        all.extend(arguments);
        let out = self.stage.run(&all).await?.good()?;
        Ok(serde_json::from_str(&out)?)
    }

    async fn opened(&self) -> anyhow::Result<()> {
        self.run(&["prepare", "--replicas", "0"]).await?.good()?;
        self.run(&["open", "alice=1000", "bob=0"]).await?.good()?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_phase_commands_work_without_a_database() -> anyhow::Result<()> {
    let Some(place) = place("cli")? else {
        return Ok(());
    };
    let unfit = place.run(&["recover", "--once"]).await?.failure()?;
    assert!(unfit.contains("cli-documents does not exist"), "{unfit}");
    // By default it makes replicas, for which this server has no node: it fails at once and makes
    // nothing.
    let alone = place.run(&["prepare"]).await?.failure()?;
    assert!(alone.contains("--replicas 0"), "{alone}");
    place.opened().await?;
    let rent = ["create", "rent", "--transfer", "alice", "bob", "900"];
    assert_eq!(place.run(&rent).await?.good()?, "rent is created");
    assert_eq!(place.run(&rent).await?.good()?, "rent is created", "once");
    let other = ["create", "rent", "--transfer", "alice", "bob", "901"];
    let other = place.run(&other).await?.failure()?;
    assert!(other.contains("has other effects"), "{other}");
    let nobody = place.run(&["roll-back", "nobody"]).await?.failure()?;
    assert!(
        nobody.contains("no transaction nobody") && nobody.contains("may still arrive"),
        "{nobody}"
    );
    let list = place.run(&["list"]).await?.good()?;
    assert!(list.contains("alice -900, bob +900"), "{list}");
    let list = place.json(&["list"]).await?;
    assert_eq!(list[0]["id"], "rent");
    assert_eq!(list[0]["transaction_state"], "created", "{list}");
    let pass = ["recover", "--once", "--older-than", "0"];
    let recovered = place.json(&pass).await?;
    assert_eq!(recovered["finished"], 1, "{recovered}");
    let again = place.json(&pass).await?;
    assert_eq!(again["finished"], 0, "{again}");
    assert!(recovered["open"].as_array().is_some_and(Vec::is_empty));
    let shown = place.json(&["show", "rent"]).await?;
    assert_eq!(shown["transaction_state"], "finished");
    assert_eq!(shown["effects"][0]["add"], -900);
    let balances = place.json(&["balance", "alice", "bob"]).await?;
    assert_eq!(
        (&balances[0]["total"], &balances[1]["available"]),
        (&100.into(), &900.into())
    );
    let nobody = place.run(&["balance", "alice", "nobody"]).await?;
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
    assert!(nobody.out.contains("nobody"), "{nobody:?}");
    assert_eq!(nobody.err, "error: not found: 1 of 2 documents.");
    let same = place.run(&["open", "alice=1000"]).await?.good()?;
    assert_eq!(same, "alice exists, opened with 1000");
    let other = place.run(&["open", "alice=7", "carol=1"]).await?;
    assert_eq!(other.code, Some(1), "{other:?}");
    let expected = "alice exists, opened with 1000\nopened carol with 1";
    assert_eq!(other.out, expected);
    assert!(other.err.contains("another opening balance"), "{other:?}");
    let poor = [
        "create",
        "more",
        "--transfer",
        "alice",
        "bob",
        "101",
        "--run",
    ];
    let poor = place.run(&poor).await?.failure()?;
    assert!(
        poor.contains("less available") && poor.contains("Nothing was moved"),
        "{poor}"
    );
    let both = [
        "create",
        "both",
        "--add",
        "alice=-1",
        "--add",
        "bob=1",
        "--set",
        r#"bob={"owner":"ann"}"#,
        "--run",
    ];
    assert_eq!(place.run(&both).await?.good()?, "both is finished");
    let late = place.run(&["roll-back", "both"]).await?.failure()?;
    assert!(late.contains("committed before"), "{late}");
    place
        .run(&["create", "never", "--add", "alice=-1"])
        .await?
        .good()?;
    let never = place.run(&["roll-back", "never"]).await?.good()?;
    assert_eq!(never, "never is rolled-back");
    let shown = place.run(&["show", "never"]).await?.good()?;
    assert!(shown.contains("a client requested it"), "{shown}");
    let audit = place.run(&["audit"]).await?.good()?;
    assert!(
        audit.contains("opened with 1001, settled +0, balances 1001"),
        "{audit}"
    );
    let young = place
        .run(&["prune", "--older-than", "0h"])
        .await?
        .failure()?;
    assert!(young.contains("one hour after their end"), "{young}");
    let wrong = place.run(&["prune", "--older-than", "soon"]).await?;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    let pruned = place.run(&["prune", "--older-than", "1h"]).await?.good()?;
    assert_eq!(pruned, "0 transactions deleted, 0 equally old ones kept");
    ran::note("two-phase-cli");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn audits_with_findings_exit_with_3_and_name_them() -> anyhow::Result<()> {
    let Some(place) = place("cli-audit")? else {
        return Ok(());
    };
    place.opened().await?;
    // A client changes a balance directly.
    let url = format!(
        "{}/cli-audit-documents/_doc/bob?refresh=true",
        place.server.url()
    );
    let _ = rustls::crypto::ring::default_provider().install_default();
    let wrong = reqwest::Client::builder().no_proxy().build()?.put(url);
    let wrong = wrong.header("content-type", "application/json");
    let wrong = wrong.body(r#"{"balance":7,"opened":0}"#).send().await?;
    assert!(wrong.status().is_success());
    let output = place.run(&["audit"]).await?;
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(
        output.out.contains("document bob: its balance is 7,"),
        "{output:?}"
    );
    assert_eq!(output.err, "error: 1 inconsistency was found.");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_runs_until_stopped() -> anyhow::Result<()> {
    let Some(place) = place("cli-loop")? else {
        return Ok(());
    };
    let arguments = ["two-phase", "recover", "--older-than", "0", "--every", "1"];
    let mut recovery = place.stage.spawn(&arguments)?;
    // The indexes do not exist yet: the command reports that and continues.
    recovery
        .error_line("nothing was recovered: ", BOUND)
        .await?;
    place.opened().await?;
    place
        .run(&["create", "rent", "--transfer", "alice", "bob", "9"])
        .await?
        .good()?;
    recovery.line("1 finished", BOUND).await?;
    recovery.terminate()?;
    assert!(recovery.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_reports_a_pass_despite_a_failed_listing() -> anyhow::Result<()> {
    let (stage, fake) = (Stage::new()?, FakeElastic::start(1).await?);
    let run = async |arguments: &[&str]| at_the_fake(&stage, &fake, arguments).await;
    run(&["prepare", "--replicas", "0"]).await?.good()?;
    // Both indexes are checked and one is refreshed. Then the version is requested, a point in time
    // is opened, transactions that are due are searched, and it is closed. Then the server is
    // unavailable for a moment.
    let before = [None; 7].into_iter();
    fake.plan(before.chain([Some(Fault::UnavailableBefore)]));
    let output = run(&["recover", "--once"]).await?;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.out.starts_with("0 finished, 0 rolled back"),
        "{output:?}"
    );
    assert!(output.err.contains("could not be listed"), "{output:?}");
    let output = run(&["recover", "--once"]).await?.good()?;
    assert!(!output.contains("could not be listed"), "{output}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_stuck_for_an_hour_are_listed() -> anyhow::Result<()> {
    let (stage, fake) = (Stage::new()?, FakeElastic::start(1).await?);
    let run = async |arguments: &[&str]| at_the_fake(&stage, &fake, arguments).await?.good();
    run(&["prepare", "--replicas", "0"]).await?;
    run(&["open", "alice=1000", "bob=0"]).await?;
    run(&["create", "rent", "--transfer", "alice", "bob", "9"]).await?;
    fake.make_unreadable([("documents", "alice")]);
    let refreshed = || fake.call("POST", "/transactions/_refresh", b"");
    let young = std::time::Duration::from_secs(3_500);
    fake.advance_clock(young);
    refreshed();
    let stuck = ["list", "--stuck-for", "3600"];
    assert_eq!(run(&stuck).await?, "no transaction matches");
    let output = run(&["recover", "--once"]).await?;
    assert!(
        output.contains("1 still open") && !output.contains("for an hour"),
        "{output}"
    );
    fake.advance_clock(young);
    refreshed();
    let output = run(&stuck).await?;
    assert!(
        output.starts_with("rent has been created since "),
        "{output}"
    );
    assert!(
        output.ends_with("the document alice cannot be read"),
        "{output}"
    );
    let output = run(&["recover", "--once"]).await?;
    assert!(
        output.contains("\nstuck for an hour: rent has been created since "),
        "{output}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_one_line_without_secrets() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let nowhere = stage.run(&["two-phase", "list"]).await?.failure()?;
    assert!(nowhere.contains("give --elastic URL"), "{nowhere}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    drop(listener);
    let url = format!("http://elastic:geheim+4711@127.0.0.1:{port}");
    for arguments in [
        &["two-phase", "audit", "--elastic", &url][..],
        &[
            "two-phase",
            "create",
            "t",
            "--transfer",
            "a",
            "b",
            "1",
            "--elastic",
            &url,
        ],
        &["two-phase", "audit", "--elastic", "ftp://geheim+4711"],
    ] {
        let output = stage.run(arguments).await?.failure()?;
        let place = format!("cannot connect to 127.0.0.1:{port}: ");
        assert!(
            output.contains(&place) || arguments[3].starts_with("ftp"),
            "{output}"
        );
        assert!(
            output.lines().count() == 1 && !output.contains("geheim"),
            "{output}"
        );
    }
    stage.write(
        "posthaste.toml",
        "[two_phase]\nelastic = 'http://h'\nkey = 'geheim'\n",
    )?;
    let absent = ["two-phase", "audit", "--config", "typo.toml"];
    let absent = stage.run(&absent).await?.failure()?;
    assert_eq!(absent, "error: typo.toml does not exist.");
    let output = stage.run(&["two-phase", "audit"]).await?.failure()?;
    assert!(
        output.contains("key: is not a setting") && !output.contains("geheim"),
        "{output}"
    );
    for wrong in [
        &["two-phase", "create", "t"][..],
        &["two-phase", "create", "t", "--add", "a=1.5"],
        &["two-phase", "list", "--state", "lost"],
    ] {
        assert_eq!(stage.run(wrong).await?.code, Some(2), "{wrong:?}");
    }
    stage.write("none", "")?;
    // Rejected before any request is sent.
    for (wrong, rule) in [
        (["a", "a", "1"], "one effect for each document"),
        (["a", "b", "0"], "from 1 to 2^53"),
        (["a", "b", "-5"], "from 1 to 2^53"),
        (["a b", "b", "1"], "[A-Za-z0-9_-]"),
    ] {
        let mut arguments = vec![
            "two-phase",
            "create",
            "t",
            "--elastic",
            &url,
            "--config",
            "none",
            "--transfer",
        ];
        arguments.extend(wrong);
        let output = stage.run(&arguments).await?.failure()?;
        assert!(output.contains(rule), "{output}");
    }
    Ok(())
}
