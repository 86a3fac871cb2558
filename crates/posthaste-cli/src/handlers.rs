//! The handlers of a worker: commands to run, and URLs to which jobs are posted.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use posthaste::{Exec, Http, QueueConfig, Secret, WorkerBuilder};

use crate::failure::{self, CommandExit, USAGE_EXIT_CODE};
use crate::options::parse_duration_between;

/// The variable with the signing secrets if no file is given.
const SECRET_VARIABLE: &str = "POSTHASTE_WEBHOOK_SECRET";
/// How much longer than its time limit a run may take: to be asked to end, killed, and reported.
const TIME_LIMIT_MARGIN: Duration = Duration::from_secs(15);

/// The default number of concurrent jobs of a queue.
const DEFAULT_CONCURRENCY: u16 = 32;
/// The default queue.
const DEFAULT_QUEUE: &str = "default";

/// Options for queues and the handlers of their jobs.
#[derive(clap::Args)]
pub(crate) struct HandlerOptions {
    /// Serve this queue, and run at most N of its jobs at once (repeatable; default: the queue
    /// default, with N = 32)
    #[arg(long = "queue", value_name = "NAME[=N]", value_parser = parse_queue)]
    queues: Vec<(String, u16)>,

    /// Run a command for each job of this name; mail.* matches all names that begin with mail.
    /// (repeatable). The command reads the arguments as JSON from standard input. Exit code 0
    /// completes the job, 65 discards it, any other code retries it
    #[arg(long = "exec", value_name = "NAME=COMMAND", value_parser = parse_assignment)]
    commands: Vec<(String, String)>,

    /// Send each job of this name to a URL by POST, with the arguments as JSON (repeatable)
    #[arg(long = "http", value_name = "NAME=URL", value_parser = parse_assignment)]
    addresses: Vec<(String, String)>,

    /// Sign requests (Standard Webhooks) with the secrets in this file, one per line (default: the
    /// secrets in POSTHASTE_WEBHOOK_SECRET)
    #[arg(long, value_name = "FILE", requires = "addresses")]
    secret_file: Option<PathBuf>,

    /// Time limit for a command or a request
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        value_parser = parse_duration_between(1, 86_400)
    )]
    time_limit: Duration,
}

/// The handlers that the arguments describe.
#[derive(Default)]
pub(crate) struct OpenHandlers {
    /// Empty without a handler.
    pub(crate) queues: Vec<QueueConfig>,
    commands: Vec<(String, Exec)>,
    addresses: Vec<(String, Http)>,
}

impl OpenHandlers {
    pub(crate) fn add_to(self, mut builder: WorkerBuilder) -> WorkerBuilder {
        for (pattern, command) in self.commands {
            builder = builder.handler(pattern, command.handler());
        }
        for (pattern, address) in self.addresses {
            builder = builder.handler(pattern, address.handler());
        }
        builder
    }
}

impl HandlerOptions {
    /// Returns a usage error that names the options, if no handler is configured.
    pub(crate) fn require(&self, who: &str) -> anyhow::Result<()> {
        if !self.is_empty() {
            return Ok(());
        }
        let line = format!(
            "{who} needs a handler. Give --exec NAME=COMMAND, which runs a command for each job of \
             this name, or --http NAME=URL, which posts each job there; '*' matches every name."
        );
        Err(CommandExit {
            code: USAGE_EXIT_CODE,
            line,
        }
        .into())
    }

    /// Returns the handler of this job name as typed: an exact name has precedence over a pattern,
    /// and a longer pattern over a shorter one.
    pub(crate) fn handler_of(&self, name: &str) -> Option<String> {
        let typed = self.commands.iter().chain(&self.addresses);
        let fits = typed.filter(|(pattern, _)| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => pattern == name,
        });
        let rank = |(pattern, _): &&(String, String)| (!pattern.ends_with('*'), pattern.len());
        fits.max_by_key(rank).map(|(_, given)| given.clone())
    }

    /// Returns a usage error if queues are named without a handler.
    pub(crate) fn require_for_queues(&self) -> anyhow::Result<()> {
        match self.queues.is_empty() {
            true => Ok(()),
            false => self.require("--queue"),
        }
    }

    fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.addresses.is_empty()
    }

    /// Makes the handlers. Fails for settings with which every job would fail.
    pub(crate) fn open(&self) -> anyhow::Result<OpenHandlers> {
        if self.is_empty() {
            return Ok(OpenHandlers::default());
        }
        let mut patterns: Vec<&str> = (self.commands.iter().chain(&self.addresses))
            .map(|(pattern, _)| pattern.as_str())
            .collect();
        patterns.sort_unstable();
        if let Some(twice) = patterns.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("two handlers for {}. Give one.", twice[0]);
        }
        let limit = self.time_limit;
        let commands = self.commands.iter().map(|(pattern, line)| {
            let exec = split_command(line).with_context(|| format!("--exec {pattern}"))?;
            Ok((pattern.clone(), exec.time_limit(limit)))
        });
        let secrets = self.secrets()?;
        let addresses = self.addresses.iter().map(|(pattern, url)| {
            let http =
                Http::new(http_client(), url).with_context(|| format!("--http {pattern}"))?;
            let http = http.time_limit(limit).secrets(secrets.iter().cloned());
            Ok((pattern.clone(), http))
        });
        Ok(OpenHandlers {
            queues: self.queues(limit + TIME_LIMIT_MARGIN),
            commands: commands.collect::<anyhow::Result<_>>()?,
            addresses: addresses.collect::<anyhow::Result<_>>()?,
        })
    }

    fn queues(&self, timeout: Duration) -> Vec<QueueConfig> {
        let usual = [(DEFAULT_QUEUE.to_owned(), DEFAULT_CONCURRENCY)];
        let queues = match &*self.queues {
            [] => &usual[..],
            named => named,
        };
        let config = |(name, concurrency): &(String, u16)| QueueConfig {
            timeout,
            ..QueueConfig::new(name, usize::from(*concurrency))
        };
        queues.iter().map(config).collect()
    }

    fn secrets(&self) -> anyhow::Result<Vec<Secret>> {
        if self.addresses.is_empty() {
            return Ok(Vec::new());
        }
        let (text, place) = match &self.secret_file {
            Some(file) => {
                let text = fs::read_to_string(file).map_err(|error| {
                    anyhow!("{}: {}", file.display(), failure::io_error_text(&error))
                })?;
                (text, file.display().to_string())
            }
            None => match std::env::var(SECRET_VARIABLE) {
                Ok(text) => (text, SECRET_VARIABLE.to_owned()),
                Err(_) => return Ok(Vec::new()),
            },
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let secrets = lines.map(|line| {
            failure::conceal(line);
            line.parse().context(place.clone())
        });
        let secrets: Vec<Secret> = secrets.collect::<anyhow::Result<_>>()?;
        if secrets.is_empty() {
            bail!(
                "{place} contains no secret. Add one per line: whsec_ followed by 24 to 64 random \
                 bytes in base64."
            );
        }
        Ok(secrets)
    }
}

fn parse_queue(text: &str) -> Result<(String, u16), String> {
    let (name, concurrency) = text.split_once('=').unwrap_or((text, ""));
    if name.is_empty() {
        return Err("a queue needs a name".to_owned());
    }
    match concurrency {
        "" if name.len() == text.len() => Ok((name.to_owned(), DEFAULT_CONCURRENCY)),
        number => match number.parse() {
            Ok(number @ 1..=1_000) => Ok((name.to_owned(), number)),
            _ => Err(format!("\"{number}\" is not a number from 1 to 1000")),
        },
    }
}

fn parse_assignment(text: &str) -> Result<(String, String), String> {
    let (pattern, target) = text.split_once('=').unwrap_or((text, ""));
    if pattern.is_empty() || target.trim().is_empty() {
        return Err("write NAME=HANDLER: a job name and its handler".to_owned());
    }
    if pattern.trim_end_matches('*').contains('*') || pattern.ends_with("**") {
        return Err(format!(
            "\"{pattern}\": a * is allowed only at the end of a name"
        ));
    }
    Ok((pattern.to_owned(), target.trim().to_owned()))
}

/// Splits a line into the program and its arguments. Quotes have no meaning.
fn split_command(line: &str) -> anyhow::Result<Exec> {
    let mut words = line.split_whitespace();
    let program = words.next().context("no command")?;
    let withheld = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.as_bytes();
        name.starts_with(b"PG") || name.starts_with(b"POSTHASTE_")
    });
    let withheld: Vec<OsString> = withheld.collect();
    Ok(Exec::new(find_program(program)?)?
        .arguments(words)
        .withhold(withheld))
}

/// Resolves a program to an absolute path once, so that all jobs run the same program.
fn find_program(program: &str) -> anyhow::Result<PathBuf> {
    if program.contains('/') {
        return Ok(std::path::absolute(program)?);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&folders).map(|folder| folder.join(program));
    places
        .find(|place| Exec::new(place).is_ok())
        .and_then(|place| std::path::absolute(place).ok())
        .ok_or_else(|| {
            anyhow!("no command {program} is on PATH. Write its path, such as ./{program}.")
        })
}

fn http_client() -> reqwest::ClientBuilder {
    reqwest::Client::builder().user_agent(concat!("posthaste/", env!("CARGO_PKG_VERSION")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_options_are_a_name_and_an_optional_concurrency() {
        assert_eq!(parse_queue("mail"), Ok(("mail".to_owned(), 32)));
        assert_eq!(parse_queue("mail=4"), Ok(("mail".to_owned(), 4)));
        for wrong in ["", "=4", "mail=", "mail=0", "mail=x"] {
            assert!(parse_queue(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn handler_options_are_a_name_or_prefix_and_a_target() {
        let pair = |name: &str, target: &str| Ok((name.to_owned(), target.to_owned()));
        assert_eq!(
            parse_assignment("mail=./send -v"),
            pair("mail", "./send -v")
        );
        assert_eq!(parse_assignment("mail.*=/bin/x"), pair("mail.*", "/bin/x"));
        assert_eq!(
            parse_assignment("*=http://h/?a=b"),
            pair("*", "http://h/?a=b")
        );
        for wrong in ["", "mail", "mail=", "=x", "m*l=x", "mail**=x"] {
            assert!(parse_assignment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_bare_command_names_are_searched_in_path() {
        assert!(find_program("sh").unwrap().is_absolute());
        let absent = find_program("posthaste-absent").unwrap_err().to_string();
        assert!(absent.contains("no command posthaste-absent"));
        assert!(split_command("./posthaste-absent x").is_err());
    }
}
