//! Runs commands, replaces volatile text, and compares the output with the recorded files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use posthaste_testkit::TestDb;
use regex::Regex;

use crate::stage::{BOUND, CommandOutput, Stage};

/// The command that records the files again.
const AGAIN: &str =
    "POSTHASTE_WRITE=1 cargo test -p posthaste-cli --all-features --test main -- golden::";

/// Patterns of volatile text, in the order in which they are replaced.
const VOLATILE: [(&str, &str); 21] = [
    (
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)?",
        "<time>",
    ),
    (r"(since|at|due) \d\d:\d\d(:\d\d)?", "$1 <time>"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uuid>"),
    (r"\b[0-9a-f]{36,44}\b", "<position>"),
    (r"(127\.0\.0\.1|localhost):\d+", "$1:<port>"),
    (r"\b[0-9A-F]{1,8}/[0-9A-F]{1,8}\b", "<lsn>"),
    (r"'[0-9a-f]{16}'", "'<id>'"),
    (r"about \d+ documents", "about <number> documents"),
    (
        r"worker \d+ \([^\s,)]+, posthaste",
        "worker <number> (<host>, posthaste",
    ),
    (r"posthaste \d+\.\d+\.\d+", "posthaste <version>"),
    (r"PostgreSQL \d+(\.\d+)?", "PostgreSQL <version>"),
    (r"\b(process|pid|session) \d+", "$1 <pid>"),
    (r"\b\d+(\.\d+)? (ms|s|min)\b", "<duration>"),
    (r"\b\d+\.\d+/s", "<rate>"),
    (r"locks on \d+ tables", "locks on <number> tables"),
    (r"waited=\d+", "waited=<seconds>"),
    (r"\b\d+(\.\d+)? (kB|MB|GB|KiB|MiB)\b", "<size>"),
    (r"posthaste-cli-\d+-\d+", "<folder>"),
    (r"(\S) {2,}", "$1  "),
    (r" +\n", "\n"),
    // A warning of any long-running command, once jobs have waited for a minute.
    (
        r"<time> +WARN jobs wait in a queue that no worker serves[^\n]*\n",
        "",
    ),
];

/// The output of commands, by the file of each command.
pub(super) struct Transcripts {
    pub(super) stage: Stage,
    pub(super) url: String,
    name: String,
    commands: Vec<String>,
    volatile: Vec<(Regex, &'static str)>,
    files: BTreeMap<String, String>,
}

impl Transcripts {
    pub(super) async fn new(stage: Stage, database: &TestDb) -> anyhow::Result<Self> {
        let commands = stage.commands().await?;
        let volatile = VOLATILE.map(|(pattern, text)| anyhow::Ok((Regex::new(pattern)?, text)));
        Ok(Self {
            stage,
            url: database.url().to_owned(),
            name: database.name().to_owned(),
            commands,
            volatile: volatile.into_iter().collect::<anyhow::Result<_>>()?,
            files: BTreeMap::new(),
        })
    }

    /// Runs a command line to its end and records it.
    pub(super) async fn run(&mut self, line: &str) -> anyhow::Result<CommandOutput> {
        let url = self.url.clone();
        self.run_at(&url, line).await
    }

    /// Like [`run`](Self::run), with this `DATABASE_URL`.
    pub(super) async fn run_at(&mut self, url: &str, line: &str) -> anyhow::Result<CommandOutput> {
        let words = split(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = self.stage.run_with_url(url, &words).await?;
        let environment = match url == self.url {
            true => String::new(),
            false => format!("DATABASE_URL={url} "),
        };
        self.record(&environment, line, &output)?;
        Ok(output)
    }

    /// Runs a command until it prints `until`, stops it with SIGTERM, and records it.
    pub(super) async fn run_until(&mut self, line: &str, until: &str) -> anyhow::Result<()> {
        let words = split(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut child = self.stage.spawn_at(&self.url, &words)?;
        child
            .error_line(until, BOUND)
            .await
            .context(line.to_owned())?;
        child.terminate()?;
        let output = CommandOutput::by(child).await?;
        self.record("", line, &output)
    }

    fn record(
        &mut self,
        environment: &str,
        line: &str,
        output: &CommandOutput,
    ) -> anyhow::Result<()> {
        let matching = self
            .commands
            .iter()
            .filter(|command| line.starts_with(*command));
        let command = matching.max_by_key(|command| command.len());
        let file = command.map_or_else(|| "posthaste".to_owned(), |name| name.replace(' ', "-"));
        let parts = [&output.out, &output.err]
            .into_iter()
            .filter(|part| !part.is_empty());
        let printed: String = parts.map(|part| format!("{part}\n")).collect();
        let code = output.code.context("ended by a signal")?;
        let text = format!("$ {environment}posthaste {line}\n{printed}[exit code {code}]\n\n");
        let text = self.normalize(&text);
        self.files.entry(file).or_default().push_str(&text);
        Ok(())
    }

    fn normalize(&self, text: &str) -> String {
        let text = text.replace(&self.name, "<database>");
        self.volatile
            .iter()
            .fold(text, |text, (pattern, replacement)| {
                pattern.replace_all(&text, *replacement).into_owned()
            })
    }

    /// Fails with each difference from the recorded files; every command must have a file.
    pub(super) fn compare(self) -> anyhow::Result<()> {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"));
        let mut differences = String::new();
        for command in &self.commands {
            if !self.files.contains_key(&command.replace(' ', "-")) {
                differences.push_str(&format!("posthaste {command} was not run\n"));
            }
        }
        for (name, printed) in &self.files {
            let path = folder.join(format!("{name}.txt"));
            if std::env::var_os("POSTHASTE_WRITE").is_some() {
                std::fs::write(&path, printed)?;
            }
            let recorded = std::fs::read_to_string(&path).unwrap_or_default();
            if recorded != *printed {
                differences.push_str(&format!("{name}.txt:\n{}", difference(&recorded, printed)));
            }
        }
        anyhow::ensure!(differences.is_empty(), "{differences}to record it: {AGAIN}");
        Ok(())
    }
}

/// Returns the lines from the first to the last difference.
fn difference(recorded: &str, printed: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (recorded.lines().collect(), printed.lines().collect());
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(&new).take_while(same).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev());
    let tail = tail.take_while(same).count();
    let lines = |sign: &str, all: &[&str]| -> String {
        let all = &all[head..all.len() - tail];
        all.iter().map(|line| format!("{sign} {line}\n")).collect()
    };
    lines("-", &old) + &lines("+", &new)
}

/// Splits a line as a shell does, for words in single quotes.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}
