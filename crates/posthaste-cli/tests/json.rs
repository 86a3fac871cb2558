//! The output of each command with `--json`, as docs/reference/json.txt lists it.

mod captures;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use posthaste_testkit::receivers::{self, OpenSearch, Receiver};
use posthaste_testkit::{Child, PgServer, PgVersion, Sql as _, TestDb};
use serde_json::Value;

use crate::stage::{BOUND, CommandOutput, Stage};

/// The form of a command's output, as documented or as observed.
#[derive(Debug, Default, PartialEq)]
struct Form {
    /// `document`, `list`, `lines` or `refused`.
    kind: &'static str,
    /// Keys of the document or of the items of the list; events of lines.
    keys: BTreeSet<String>,
    /// Keys that are not always present.
    perhaps: BTreeSet<String>,
}

const KINDS: [&str; 4] = ["document", "list", "lines", "refused"];

/// Reads the list of the file, by command and option.
fn documented() -> anyhow::Result<BTreeMap<String, Form>> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/json.txt");
    // An indented line continues the line before.
    let list = std::fs::read_to_string(file)?.replace("\n   ", " ");
    let words = |text: &str| {
        text.split([' ', ']'])
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let mut forms = BTreeMap::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (command, form) = line.split_once("  ").context("no form")?;
        let (form, keys) = form.split_once(':').unwrap_or((form, ""));
        let kind = KINDS.into_iter().find(|kind| form.trim() == *kind);
        let kind = kind.with_context(|| format!("{command}: {form}"))?;
        let (always, perhaps) = keys.split_once('[').unwrap_or((keys, ""));
        let form = Form {
            kind,
            keys: words(always),
            perhaps: words(perhaps),
        };
        let twice = forms.insert(command.to_owned(), form);
        ensure!(twice.is_none(), "{command} appears twice");
    }
    Ok(forms)
}

/// Commands that have run, with their output.
struct Runs {
    stage: Stage,
    database: TestDb,
    seen: BTreeMap<String, Form>,
}

impl Runs {
    async fn run(&self, line: &str) -> anyhow::Result<CommandOutput> {
        let words: Vec<&str> = line.split(' ').chain(["--json"]).collect();
        self.stage.run_on(&self.database, &words).await
    }

    fn saw(&mut self, item: &str, form: Form) {
        // The last run may show more keys than earlier ones.
        self.seen.insert(item.to_owned(), form);
    }

    /// Runs a command to its end; `item` is its entry in the list, `more` are further arguments.
    async fn ends(&mut self, item: &str, more: &str) -> anyhow::Result<Value> {
        let base = item.split(" --").next().unwrap_or_default();
        let option = item.strip_prefix(base).unwrap_or_default();
        let line = format!("{base}{option} {more}");
        let output = self.run(line.trim()).await?;
        self.ended(item, output).with_context(|| line)
    }

    fn ended(&mut self, item: &str, output: CommandOutput) -> anyhow::Result<Value> {
        ensure!(matches!(output.code, Some(0 | 3)), "{output:?}");
        let value: Value = serde_json::from_str(&output.out).with_context(|| output.out.clone())?;
        let (kind, all) = match &value {
            Value::Array(all) => ("list", all.as_slice()),
            one => ("document", std::slice::from_ref(one)),
        };
        let keys = all.iter().filter_map(Value::as_object);
        let keys = keys.flat_map(|one| one.keys().cloned()).collect();
        ensure!(!all.is_empty(), "{item}: nothing was shown");
        self.saw(
            item,
            Form {
                kind,
                keys,
                ..Form::default()
            },
        );
        Ok(value)
    }

    /// Runs a long-running command and stops it after a line with this event.
    async fn goes_on(&mut self, item: &str, more: &str, until: &str) -> anyhow::Result<()> {
        let line = format!("{item} {more}");
        let words: Vec<&str> = line.split_whitespace().chain(["--json"]).collect();
        let mut child = self.stage.spawn_on(&self.database, &words)?;
        self.stopped(item, &mut child, until).await
    }

    async fn stopped(&mut self, item: &str, child: &mut Child, until: &str) -> anyhow::Result<()> {
        child
            .line(&format!("{{\"event\":\"{until}\""), BOUND)
            .await?;
        child.terminate()?;
        ensure!(
            child.exit(BOUND).await?.success(),
            "{item}: {:?}",
            child.stderr()
        );
        let mut keys = BTreeSet::new();
        for line in child.stdout() {
            let line: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
            keys.extend(line["event"].as_str().map(str::to_owned));
        }
        let kind = "lines";
        self.saw(
            item,
            Form {
                kind,
                keys,
                ..Form::default()
            },
        );
        Ok(())
    }

    async fn refused(&mut self, item: &str, more: &str) -> anyhow::Result<()> {
        let output = self.run(&format!("{item} {more}")).await?;
        ensure!(
            output.code == Some(2) && output.out.is_empty(),
            "{output:?}"
        );
        ensure!(output.err.contains("omit --json"), "{output:?}");
        let kind = "refused";
        self.saw(
            item,
            Form {
                kind,
                ..Form::default()
            },
        );
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_prints_the_documented_keys() -> anyhow::Result<()> {
    let mut runs = Runs {
        stage: Stage::new()?,
        database: TestDb::empty(PgServer::shared(PgVersion::any())?).await?,
        seen: BTreeMap::new(),
    };
    around(&mut runs).await?;
    jobs_and_queues(&mut runs).await?;
    relay(&mut runs).await?;
    sync(&mut runs).await?;
    captures::captures(&mut runs).await?;
    let has_a_server = receivers::are_here("json", &[Receiver::OpenSearch]);
    if has_a_server {
        rebuild(&mut runs).await?;
        two_phase(&mut runs).await?;
    }
    work(&mut runs).await?;
    let documented = documented()?;
    let mut wrong = Vec::new();
    for command in runs.stage.commands().await? {
        if !documented.contains_key(&command) {
            wrong.push(format!("{command} is not in the list"));
        }
    }
    for (item, form) in &documented {
        let Some(seen) = runs.seen.get(item) else {
            let needs_a_server = item.starts_with("two-phase") || item.starts_with("sync rebuild");
            if has_a_server || !needs_a_server {
                wrong.push(format!("{item} was not run"));
            }
            continue;
        };
        let (kind, keys) = (seen.kind, &seen.keys);
        let known: BTreeSet<String> = form.keys.union(&form.perhaps).cloned().collect();
        // The keys of a preview depend on the destination.
        let is_as_listed =
            (form.keys.is_subset(keys) && keys.is_subset(&known)) || item == "relay preview";
        if form.kind != kind || !is_as_listed {
            wrong.push(format!(
                "{item} is {kind} of {keys:?}, and the list has {form:?}"
            ));
        }
    }
    let unknown = runs
        .seen
        .keys()
        .filter(|item| !documented.contains_key(*item));
    wrong.extend(unknown.map(|item| format!("{item} is not in the list: {:?}", runs.seen[item])));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Commands that prepare and inspect the queue.
async fn around(runs: &mut Runs) -> anyhow::Result<()> {
    runs.ends("init", "").await?;
    std::fs::remove_file(runs.stage.folder.join("posthaste.toml"))?;
    runs.ends("migrate --print", "--roles").await?;
    runs.ends("migrate", "--roles").await?;
    runs.ends("rebase", "--force").await?;
    runs.ends("adopt", "--force --discard").await?;
    runs.refused("completions", "bash").await?;
    runs.refused("manual", "jobs list").await?;
    runs.goes_on("console", "--listen 127.0.0.1:0", "listening")
        .await?;

    let words = ["exporter", "--listen", "127.0.0.1:0", "--json"];
    let mut exporter = runs.stage.spawn_on(&runs.database, &words)?;
    let line = exporter.line("{\"event\":\"listening\"", BOUND).await?;
    let line: Value = serde_json::from_str(&line)?;
    let url = line["url"].as_str().context("no address")?;
    let ready = url.replace("/metrics", "/ready");
    runs.ends("health", &ready).await?;
    let absent = runs
        .run(&format!("health {}", url.replace("/metrics", "/absent")))
        .await?;
    ensure!(absent.code == Some(1), "{absent:?}");
    let absent: Value = serde_json::from_str(&absent.out)?;
    ensure!(absent["ready"] == false, "{absent}");
    exporter.terminate()?;
    ensure!(exporter.exit(BOUND).await?.success());
    runs.goes_on("exporter", "--listen 127.0.0.1:0", "listening")
        .await
}

async fn jobs_and_queues(runs: &mut Runs) -> anyhow::Result<()> {
    let enqueued = runs.ends("jobs enqueue", "mail.send --queue mail").await?;
    let id = enqueued["id"].as_i64().context("no id")?.to_string();
    runs.stage
        .write("lines", &"{\"name\": \"line\"}\n".repeat(3))?;
    runs.ends("jobs enqueue --file", "lines").await?;
    runs.ends("jobs list", "").await?;
    runs.ends("jobs show", &id).await?;
    runs.ends("jobs retry", &id).await?;
    runs.ends("status", "").await?;
    runs.ends("top", "").await?;
    let firing = "--lasting 1s --queue mail --length-above 0";
    runs.ends("alerts --once", firing).await?;
    runs.goes_on("alerts", firing, "begins").await?;
    runs.ends("jobs cancel", &id).await?;
    runs.ends("jobs redrive", &id).await?;
    runs.ends("queues pause", "mail").await?;
    runs.ends("queues resume", "mail").await?;
    runs.ends("queues limit", "mail 90/m").await?;
    runs.ends("queues keep", "mail 24h").await?;
    runs.ends("queues list", "").await?;
    runs.ends("doctor", "").await?;
    runs.ends("doctor --duties", "").await?;
    runs.ends("txwatch --once", "").await?;
    runs.ends("txwatch --timeouts", "app").await?;
    runs.goes_on("txwatch", "", "watching").await?;
    Ok(())
}

async fn relay(runs: &mut Runs) -> anyhow::Result<()> {
    let route = "[route.lines]\nto = 'stdout:'\nordered = true\n";
    runs.stage.write("posthaste.toml", route)?;
    runs.run("jobs enqueue x --queue lines").await?.good()?;
    runs.ends("relay preview", "--limit 5").await?;
    runs.goes_on("relay run", "", "working").await?;
    runs.run("queues pause lines").await?.good()?;
    runs.ends("relay run --once", "").await?;
    Ok(())
}

async fn sync(runs: &mut Runs) -> anyhow::Result<()> {
    let client = runs.database.client().await?;
    let tables = "CREATE TABLE page (id bigint PRIMARY KEY, title text);
                  INSERT INTO page VALUES (1, 'haste'), (2, 'less')";
    client.run(tables).await?;
    runs.stage.write("posthaste.toml", &table("postgres:"))?;
    runs.ends("sync install", "").await?;
    runs.ends("sync reindex --dry-run", "pages --all").await?;
    runs.ends("sync reindex --pause", "pages").await?;
    runs.ends("sync reindex", "pages --all").await?;
    runs.ends("sync reindex --cancel", "pages").await?;
    runs.ends("sync reindex --resume", "pages").await?;
    runs.ends("sync reindex --progress", "pages").await?;
    runs.ends("sync reindex --wait", "pages").await?;
    runs.ends("sync run --once", "").await?;
    runs.goes_on("sync run", "", "working").await?;
    runs.ends("sync audit", "").await?;
    runs.ends("sync search", "haste").await?;
    Ok(())
}

/// Returns the settings of a synced table with this index.
fn table(index: &str) -> String {
    format!("[sync.pages]\ntable = 'page'\nindex = '{index}'\ndelay = '0s'\nperiod = '1s'\n")
}

async fn rebuild(runs: &mut Runs) -> anyhow::Result<()> {
    let index = format!("{}/json-of-commands", OpenSearch::shared()?.url());
    runs.stage.write("posthaste.toml", &table(&index))?;
    runs.run("sync install").await?.good()?;
    runs.run("sync reindex pages --all").await?.good()?;
    runs.run("sync run --once").await?.good()?;
    runs.ends("sync rebuild --give-up", "pages").await?;
    runs.ends("sync rebuild", "pages").await?;
    Ok(())
}

async fn two_phase(runs: &mut Runs) -> anyhow::Result<()> {
    let file = format!(
        "[two_phase]\nelastic = '{}'\ndocuments = 'json-documents'\n\
         transactions = 'json-transactions'\n",
        OpenSearch::shared()?.url()
    );
    runs.stage.write("posthaste.toml", &file)?;
    runs.ends("two-phase prepare", "--replicas 0").await?;
    runs.ends("two-phase open", "alice=1000 bob=0").await?;
    let rent = "rent --transfer alice bob 9";
    runs.ends("two-phase create", rent).await?;
    runs.ends("two-phase list", "").await?;
    runs.ends("two-phase list --stuck-for", "0s").await?;
    runs.ends("two-phase show", "rent").await?;
    let due = "--older-than 0s";
    runs.ends("two-phase recover --once", due).await?;
    let late = "two-phase create late --transfer alice bob 1";
    runs.run(late).await?.good()?;
    let often = format!("{due} --every 1s");
    runs.goes_on("two-phase recover", &often, "pass").await?;
    let never = "two-phase create never --add alice=-1";
    runs.run(never).await?.good()?;
    runs.ends("two-phase roll-back", "never").await?;
    runs.ends("two-phase balance", "alice bob").await?;
    runs.ends("two-phase audit", "").await?;
    runs.ends("two-phase prune", "--older-than 1h").await?;
    runs.ends("two-phase adopt", "").await?;
    std::fs::remove_file(runs.stage.folder.join("posthaste.toml"))?;
    Ok(())
}

/// Commands that run jobs.
async fn work(runs: &mut Runs) -> anyhow::Result<()> {
    runs.goes_on("work", "--exec x=true", "working").await?;
    let files = runs.stage.folder.join("files");
    crate::tree::make(&files, 5)?;
    runs.ends("demo --once", "files").await?;
    runs.goes_on("demo", "files", "working").await?;
    // On a private server, which the command starts.
    let route = "[route.lines]\nto = 'stdout:'\n";
    runs.stage.write("posthaste.toml", route)?;
    let words = [
        "up",
        "--exec",
        "x=true",
        "--listen",
        "127.0.0.1:0",
        "--json",
    ];
    let mut up = runs.stage.spawn(&words)?;
    runs.stopped("up", &mut up, "working").await
}
