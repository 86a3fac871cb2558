//! The systemd unit and the container file: the commands that they start are started here and
//! become ready.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use posthaste_testkit::{Child, Sql as _, eventually, ran};

use crate::exporter::{got, served};
use crate::stage::{self, BOUND, Stage};

/// Commands of the files that are replaced here by existing programs.
const HERE: [(&str, &str); 1] = [("/usr/local/bin/send-mail", "true")];
const TABLE: &str = "CREATE TABLE page (id bigint PRIMARY KEY, title text)";
const FILE: &str = "[route.audit]\nto = 'stdout:'\nqueue = 'audit'\n\
                    [sync.page]\ntable = 'page'\nindex = 'postgres:'\n";

fn operate(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate")).join(name)
}

/// Returns the settings of a unit.
fn settings(unit: &str) -> BTreeMap<&str, &str> {
    let lines = unit.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('=')).collect()
}

/// Returns the variables of a file for EnvironmentFile=, and those of commented lines. If a
/// commented name occurs several times, the first one counts.
fn variables(text: &str) -> (BTreeMap<String, String>, Vec<(String, String)>) {
    let (mut set, mut others) = (BTreeMap::new(), Vec::new());
    for line in text.lines() {
        let (is_comment, line) = match line.strip_prefix('#') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        let pair = (name.to_owned(), value.trim_matches('"').to_owned());
        if name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
            match is_comment {
                true => others.push(pair),
                false => drop(set.insert(pair.0, pair.1)),
            }
        }
    }
    (set, others)
}

/// Returns the words of ExecStart= as systemd splits them: `$NAME` is split at blanks, `${NAME}` is
/// not.
fn words(exec: &str, variables: &BTreeMap<String, String>) -> anyhow::Result<Vec<String>> {
    let value = |name: &str| variables.get(name).with_context(|| format!("no {name}"));
    let mut words = Vec::new();
    for word in exec.split(' ') {
        if let Some(name) = word.strip_prefix("${") {
            let name = name.strip_suffix('}').context(exec.to_owned())?;
            words.push(value(name)?.clone());
        } else if let Some(name) = word.strip_prefix('$') {
            words.extend(value(name)?.split(' ').map(str::to_owned));
        } else {
            words.push(word.to_owned());
        }
    }
    Ok(words)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_systemd_unit_starts_becomes_ready_and_stops() -> anyhow::Result<()> {
    let unit = fs::read_to_string(operate("systemd/posthaste@.service"))?;
    let settings = settings(&unit);
    let (example, others) = variables(&fs::read_to_string(operate("systemd/example.env"))?);
    let mut commands = vec![example["POSTHASTE_COMMAND"].clone()];
    let more = others
        .iter()
        .filter(|(name, _)| name == "POSTHASTE_COMMAND");
    commands.extend(more.map(|(_, value)| value.clone()));
    assert_eq!(commands.len(), 3, "{commands:?}");
    let exec = settings["ExecStart"];
    let (_, grace) = exec.split_once(" --grace ").context("no grace")?;
    let grace: u32 = grace.split(' ').next().unwrap_or_default().parse()?;
    let wait: u32 = settings["TimeoutStopSec"].parse()?;
    assert_eq!(
        wait,
        grace + 10,
        "docs/operate/deploy.md: ten seconds longer"
    );
    assert_eq!(settings["EnvironmentFile"], "/etc/posthaste/%i.env");
    assert_eq!(settings["KillMode"], "mixed");

    let (stage, database) = (Stage::new()?, stage::database().await?);
    database.client().await?.run(TABLE).await?;
    stage.write("posthaste.toml", FILE)?;
    stage
        .run_on(&database, &["sync", "install"])
        .await?
        .good()?;
    for command in commands {
        let mut variables = example.clone();
        let here = HERE.iter().fold(command, |command, (documented, here)| {
            command.replace(documented, here)
        });
        for (name, value) in [
            ("DATABASE_URL", database.url()),
            ("POSTHASTE_LISTEN", "127.0.0.1:0"),
            ("POSTHASTE_COMMAND", &here),
        ] {
            let set = variables.insert(name.to_owned(), value.to_owned());
            ensure!(set.is_some(), "the example has no {name}");
        }
        let words = words(exec, &variables)?;
        assert_eq!(words[0], "/usr/local/bin/posthaste");
        let words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let mut process = Child::spawn(stage.command(&words).envs(&variables))?;
        gets_ready(&mut process).await?;
        match settings["KillSignal"] {
            "SIGTERM" => process.terminate()?,
            other => bail!("{other}"),
        }
        let status = process.exit(BOUND).await?;
        assert!(
            status.success(),
            "{words:?}: {status:?} {:?}",
            process.stderr()
        );
    }
    Ok(())
}

async fn gets_ready(process: &mut Child) -> anyhow::Result<()> {
    let root = served(process).await?;
    eventually(BOUND, "it is ready", async || {
        Ok(got(&root, "/ready").await?.0 == 200)
    })
    .await
}

#[test]
fn systemd_analyze_rates_the_unit_as_secure() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let unit = fs::read_to_string(operate("systemd/posthaste@.service"))?;
    // systemd checks that the program exists.
    let program = stage.program().to_str().context("an odd path")?;
    let unit = unit.replace("/usr/local/bin/posthaste ", &format!("{program} "));
    let path = stage.write("posthaste@mail.service", &unit)?;
    for arguments in [
        &["verify"][..],
        &["security", "--offline=true", "--threshold=20"],
    ] {
        let mut analyze = Command::new("systemd-analyze");
        match analyze.args(arguments).arg(&path).output() {
            Ok(output) => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                let is_quiet = arguments[0] != "verify" || stderr.is_empty();
                ensure!(
                    output.status.success() && is_quiet,
                    "{arguments:?}: {output:?}"
                );
            }
            Err(error) => ran::not_run("systemd takes the unit", &error.to_string()),
        }
    }
    Ok(())
}
