//! The posthaste command: parses arguments, opens the database, and calls one function per command.

// A module imports only from the groups above its own.
mod examples;
mod failure;
mod log_line;
mod options;
mod serve;
mod stream;
mod suggestions;
mod variables;

mod connect;
mod handlers;
mod terminal;

mod cached_connection;
mod file;
mod local_postgres;
mod progress;

mod captures;
mod database;
mod elastic;
mod routes;
mod signals;
mod site;
mod thresholds;

mod observe;
mod reaper;
mod sandbox;
mod syncs;
mod transaction_watch;
mod web;

mod log;
mod worker;

mod commands;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::Level;

use commands::{
    adopt, alerts, capture, completions, console, demo, doctor, exporter, health, init, jobs,
    manual, migrate, queues, rebase, relay, status, sync, top, two_phase, txwatch, up, work,
};
use database::{Database, DatabaseOptions};
use examples::with_examples;
use local_postgres::IfAbsent;
use log_line::Format;
use observe::Otlp;
use signals::Signals;
use terminal::Terminal;

/// The exit codes; docs/reference/cli.md lists them too.
const EXIT_CODES: &str = "Exit codes: 0 success; 1 failure, with the reason on standard error; \
                          2 invalid arguments; 3 problems found by doctor, an audit, \
                          alerts --once, txwatch --once or capture gaps, or documents left out \
                          by sync run --once.";

/// A Postgres job queue and transactional outbox.
#[derive(Parser)]
#[command(name = "posthaste", version, about, max_term_width = 100, after_help = EXIT_CODES)]
struct Arguments {
    #[command(flatten)]
    database: DatabaseOptions,

    /// Print results as JSON: one document, or one line per event
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(init::Arguments),
    Up(up::Arguments),
    Demo(demo::Arguments),
    Migrate(migrate::Arguments),
    Work(work::Arguments),
    Jobs(jobs::Arguments),
    Queues(queues::Arguments),
    Relay(relay::Arguments),
    Sync(sync::Arguments),
    Capture(capture::Arguments),
    TwoPhase(two_phase::Arguments),
    Status(status::Arguments),
    Top(top::Arguments),
    Doctor(doctor::Arguments),
    Alerts(alerts::Arguments),
    Txwatch(txwatch::Arguments),
    Console(console::Arguments),
    Exporter(exporter::Arguments),
    Health(health::Arguments),
    Rebase(rebase::Arguments),
    Adopt(adopt::Arguments),
    Completions(completions::Arguments),
    Manual(manual::Arguments),
    #[command(hide = true)]
    Load(demo::packages::load::Arguments),
}

impl Command {
    /// Whether the command runs until it is stopped.
    fn is_long_running(&self) -> bool {
        match self {
            Self::Up(_) | Self::Work(_) | Self::Console(_) | Self::Exporter(_) => true,
            Self::Demo(demo) => demo.is_long_running(),
            Self::Relay(relay) => relay.is_long_running(),
            Self::Sync(sync) => sync.is_long_running(),
            Self::Capture(capture) => capture.is_long_running(),
            Self::TwoPhase(two_phase) => two_phase.is_long_running(),
            Self::Alerts(alerts) => alerts.is_long_running(),
            Self::Txwatch(txwatch) => txwatch.is_long_running(),
            Self::Init(_)
            | Self::Migrate(_)
            | Self::Jobs(_)
            | Self::Queues(_)
            | Self::Status(_)
            | Self::Top(_)
            | Self::Doctor(_)
            | Self::Health(_)
            | Self::Rebase(_)
            | Self::Adopt(_)
            | Self::Completions(_)
            | Self::Manual(_)
            | Self::Load(_) => false,
        }
    }

    /// Whether the command sends telemetry. All such commands are long-running.
    fn exports_telemetry(&self) -> bool {
        matches!(
            self,
            Self::Up(_)
                | Self::Work(_)
                | Self::Relay(_)
                | Self::Sync(_)
                | Self::Capture(_)
                | Self::Exporter(_)
        )
    }
}

/// The error for a missing command. With DATABASE_URL set, clap reports `MissingSubcommand`
/// instead, in a message that names hidden commands.
const NO_COMMAND: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

fn main() -> ExitCode {
    let matches = with_examples(Arguments::command()).try_get_matches();
    let parsed = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(help) if !help.use_stderr() => help.exit(),
        Err(error) => return report_usage_error(&error),
    };
    if arguments.command.is_long_running() && reaper::is_init() {
        return match reaper::run_as_init() {
            Ok(code) => code,
            Err(error) => print_failure(1, &failure::error_line(&error.context("cannot start"))),
        };
    }
    // Installed before any TLS configuration is built: rustls takes the process's provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    raise_descriptor_limit();
    let format = match Format::from_env() {
        Ok(format) => format,
        Err(error) => return print_failure(failure::USAGE_EXIT_CODE, &error.to_string()),
    };
    let terminal = Terminal::new(arguments.json, arguments.command.is_long_running(), format);
    let terminal = match terminal {
        Ok(terminal) => terminal,
        Err(error) => return print_failure(1, &format!("cannot start: {error}")),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return print_failure(1, &format!("cannot start: {error}")),
    };
    let otlp = match arguments.command.exports_telemetry() {
        true => Otlp::start(runtime.handle()),
        false => Ok(None),
    };
    let otlp = match otlp {
        Ok(otlp) => otlp,
        Err(error) => return print_failure(1, &failure::error_line(&error)),
    };
    if let Err(error) = log::start_logging(format, &terminal, otlp.as_ref()) {
        return print_failure(failure::USAGE_EXIT_CODE, &error.to_string());
    }
    let outcome = runtime.block_on(run(&arguments, &terminal));
    let outcome =
        outcome.and_then(|()| terminal.print_event_line("stopped", &serde_json::json!({})));
    if let Some(otlp) = otlp {
        otlp.flush();
    }
    // A normal shutdown would wait for a thread that reads standard input until the next line.
    runtime.shutdown_background();
    terminal.flush();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => print_failure(failure::exit_code(&error), &failure::error_line(&error)),
    }
}

/// Prints one line about invalid arguments; without a command, prints the list of commands first.
fn report_usage_error(error: &clap::Error) -> ExitCode {
    let typed = std::env::args_os().skip(1);
    let typed: Vec<String> = typed
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let suggested = suggestions::suggest(&Arguments::command(), &typed, error);
    let line = match error.kind() {
        NO_COMMAND | ErrorKind::MissingSubcommand => {
            let help = suggestions::help_text(with_examples(Arguments::command()), &typed);
            terminal::write_last_line(help.trim_end());
            if suggested.is_empty() {
                return ExitCode::from(failure::USAGE_EXIT_CODE);
            }
            failure::no_command_line(&suggested)
        }
        _ => {
            let command = suggestions::help_command(&Arguments::command(), &typed);
            failure::usage_line(&command, error, &suggested)
        }
    };
    print_failure(failure::USAGE_EXIT_CODE, &line)
}

/// Raises the limit of open files to its maximum: many systems have a soft limit of 1,024, and each
/// connection is a file.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // On an error the present limit remains.
    let _ = setrlimit(Resource::Nofile, raised);
}

async fn run(arguments: &Arguments, terminal: &Terminal) -> anyhow::Result<()> {
    if let Command::Migrate(migrate) = &arguments.command
        && migrate.print
    {
        return migrate::print(migrate, terminal);
    }
    if let Command::Completions(completions) = &arguments.command {
        return completions::print(completions, Arguments::command(), terminal);
    }
    if let Command::Manual(manual) = &arguments.command {
        return manual::print(manual, with_examples(Arguments::command()), terminal);
    }
    if let Command::Init(init) = &arguments.command {
        return init::run(init, terminal);
    }
    if let Command::Health(health) = &arguments.command {
        return health::run(health, terminal).await;
    }
    match &arguments.command {
        Command::Up(up) => up.check()?,
        Command::Demo(demo) => demo.check()?,
        Command::Work(work) => work.check()?,
        Command::Console(console) => console.check()?,
        Command::Jobs(jobs) => jobs.check()?,
        _ => {}
    }
    let signals = Signals::listen(terminal.clone())?;
    if let Command::TwoPhase(two_phase) = &arguments.command {
        return two_phase::run(two_phase, terminal, &signals).await;
    }
    let absent = match &arguments.command {
        Command::Up(_) | Command::Demo(_) | Command::Migrate(_) => IfAbsent::Make,
        _ => IfAbsent::Refuse,
    };
    let database = Database::open(&arguments.database, absent).await?;
    signals.set_quick_stopper(database.quick_stopper()?);
    let mut outcome = run_command(&arguments.command, &database, terminal, &signals).await;
    if let Err(error) = &outcome
        && failure::lacks_schema(error)
        && let Some(cause) = schema_error(&database).await
    {
        outcome = Err(cause);
    }
    let closed = database.close().await;
    outcome.and(closed)
}

/// Returns the error of a schema that is missing or older than this program.
async fn schema_error(database: &Database) -> Option<anyhow::Error> {
    let client = database.address().connect().await.ok()?;
    Some(posthaste::check_schema(&client).await.err()?.into())
}

async fn run_command(
    command: &Command,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let work = async {
        match command {
            Command::Up(arguments) => up::run(arguments, database, terminal, signals).await,
            Command::Demo(arguments) => demo::run(arguments, database, terminal, signals).await,
            Command::Work(arguments) => work::run(arguments, database, terminal, signals).await,
            Command::Relay(arguments) => relay::run(arguments, database, terminal, signals).await,
            Command::Sync(arguments) => sync::run(arguments, database, terminal, signals).await,
            Command::Capture(arguments) => {
                capture::run(arguments, database, terminal, signals).await
            }
            Command::Load(arguments) => {
                demo::packages::load::run(arguments, database, terminal, signals).await
            }
            Command::Migrate(arguments) => migrate::run(arguments, database, terminal).await,
            Command::Status(arguments) => status::run(arguments, database, terminal, signals).await,
            Command::Top(arguments) => top::run(arguments, database, terminal, signals).await,
            Command::Alerts(arguments) => alerts::run(arguments, database, terminal, signals).await,
            Command::Txwatch(arguments) => {
                txwatch::run(arguments, database, terminal, signals).await
            }
            Command::Console(arguments) => {
                console::run(arguments, database, terminal, signals).await
            }
            Command::Exporter(arguments) => {
                exporter::run(arguments, database, terminal, signals).await
            }
            Command::Jobs(arguments) => jobs::run(arguments, database, terminal, signals).await,
            Command::Queues(arguments) => queues::run(arguments, database, terminal).await,
            Command::Doctor(arguments) => doctor::run(arguments, database, terminal).await,
            Command::Rebase(arguments) => rebase::run(arguments, database, terminal).await,
            Command::Adopt(arguments) => adopt::run(arguments, database, terminal).await,
            // These commands need no database.
            Command::Completions(_)
            | Command::Health(_)
            | Command::Init(_)
            | Command::Manual(_)
            | Command::TwoPhase(_) => Ok(()),
        }
    };
    // These commands shut down gracefully on a signal.
    let ends_in_order = match command {
        Command::Up(_)
        | Command::Demo(_)
        | Command::Work(_)
        | Command::Load(_)
        | Command::Top(_)
        | Command::Alerts(_)
        | Command::Txwatch(_)
        | Command::Console(_)
        | Command::Exporter(_) => true,
        Command::Jobs(arguments) => arguments.enqueues(),
        Command::Relay(arguments) => arguments.needs_graceful_stop(),
        Command::Sync(arguments) => arguments.needs_graceful_stop(),
        Command::Capture(arguments) => arguments.needs_graceful_stop(),
        Command::Status(arguments) => arguments.runs_until_stopped(),
        Command::Migrate(_)
        | Command::Queues(_)
        | Command::Doctor(_)
        | Command::Rebase(_)
        | Command::Adopt(_)
        | Command::TwoPhase(_)
        | Command::Health(_)
        | Command::Init(_)
        | Command::Manual(_)
        | Command::Completions(_) => false,
    };
    if ends_in_order {
        return work.await;
    }
    tokio::select! {
        outcome = work => outcome,
        () = signals.stop_token().cancelled() => anyhow::bail!("stopped."),
    }
}

fn print_failure(code: u8, line: &str) -> ExitCode {
    let line = line.trim_start_matches("error: ");
    let line = match Format::from_env() {
        Ok(Format::Json) => log_line::line_without_event(Level::ERROR, line),
        _ => format!("error: {}", terminal::escape_control(line)),
    };
    terminal::write_last_line(&line);
    ExitCode::from(code)
}
