//! Measures posthaste against the shapes that other Postgres queues use, and reports pass or miss
//! for each bar.

mod again;
mod bars;
mod bench;
mod capture;
mod claims;
mod clock;
mod contestants;
mod database;
mod degrade;
mod gauge;
mod load;
mod machine;
mod options;
mod peers;
mod pin;
mod processes;
mod report;
mod rounds;
mod scale;
mod server;
mod statements;
mod statistics;
mod taint;
mod verdict;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::capture::CaptureOptions;
use crate::options::{Command, CommandLine, RunOptions};
use crate::report::Archive;

fn main() -> ExitCode {
    // HTTP clients use the crypto provider of the process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match obey(CommandLine::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("posthaste-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn obey(line: CommandLine) -> Result<ExitCode> {
    match line.command {
        Some(Command::Report(options)) => {
            let page = Archive::below(&options.docs).write_page()?;
            eprintln!("wrote {}", page.display());
        }
        Some(Command::Degrade(options)) => {
            runtime()?.block_on(interruptible(degrade::run(&options)))?;
        }
        Some(Command::Gate(options)) => {
            // An error is no verdict: neither kept nor broken.
            return match runtime()?.block_on(interruptible(degrade::run(&options))) {
                Ok(code) => Ok(code),
                Err(error) => {
                    eprintln!("posthaste-bench: {error:#}");
                    Ok(ExitCode::from(2))
                }
            };
        }
        Some(Command::Scale(options)) => {
            runtime()?.block_on(interruptible(scale::run(&options)))?;
        }
        Some(Command::FleetWorker(options)) => {
            runtime()?.block_on(scale::work(&options))?;
        }
        Some(Command::Peers(options)) => {
            runtime()?.block_on(interruptible(peers::run(&options)))?;
        }
        Some(Command::Capture(options)) => {
            runtime()?.block_on(interruptible(capture::run(&options)))?;
        }
        Some(Command::WorkBacklog(options)) => {
            runtime()?.block_on(bars::memory::work_backlog(&options))?;
        }
        Some(Command::AuditRows(options)) => {
            runtime()?.block_on(bars::audit::audit_rows(&options))?;
        }
        None => measure(&line.run)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(options: &RunOptions) -> Result<()> {
    let parent = options
        .data_parent
        .clone()
        .unwrap_or_else(std::env::temp_dir);
    // Server and folder are removed when it is dropped.
    let server = server::start(options.pg, &parent)?;
    runtime()?.block_on(interruptible(bench::run(&server, options)))?;
    drop(server);
    // On a separate server: the WAL of one that can be decoded is larger.
    match options.only.is_empty() {
        true => {
            let captures = CaptureOptions::beside(options);
            runtime()?.block_on(interruptible(capture::run(&captures)))
        }
        false => Ok(()),
    }
}

/// Stops the servers of a run when a signal requests its end.
async fn interruptible<T>(run: impl Future<Output = Result<T>>) -> Result<T> {
    let mut terminated = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        outcome = run => outcome,
        _ = tokio::signal::ctrl_c() => bail!("interrupted; the report has what was finished"),
        _ = terminated.recv() => bail!("terminated; the report has what was finished"),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}
