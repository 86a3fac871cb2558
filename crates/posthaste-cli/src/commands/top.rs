//! `posthaste top`: the overview in a terminal, for those who are on a server.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use deadpool_postgres::Client;
use tokio_util::sync::CancellationToken;

use crate::connect::Address;
use crate::database::Database;
use crate::observe::alerts::{Asked, History, Limits, Reading, Scope};
use crate::observe::frame::{Completed, Frame};
use crate::observe::snapshot::Snapshot;
use crate::options::between;
use crate::screen::Screen;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Show queues by how late they are, rates, alerts and who keeps rows, again and again; q quits
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Look this often
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = between(1, 86_400))]
    every: Duration,

    #[command(flatten)]
    asked: Asked,

    /// Look twice, a second apart, print that, and end; --json does so too
    #[arg(long)]
    once: bool,
}

/// Between the two looks of `--once`.
const SECOND: Duration = Duration::from_secs(1);
/// A database that answers slower than this counts as lost.
const WITHIN: Duration = Duration::from_secs(10);
/// What is printed and not drawn is as long and as wide as it is.
const ALL: usize = usize::MAX;

/// What looks.
struct Look<'a> {
    address: &'a Address,
    client: Option<Client>,
    limits: Limits,
    history: History,
    then: Option<Completed>,
    begun: Instant,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let mut look = Look {
        address: database.address(),
        client: None,
        limits: arguments.asked.limits(),
        history: History::default(),
        then: None,
        begun: Instant::now(),
    };
    let first = look.look().await?;
    let title = format!("posthaste at {}", database.address().place());
    if arguments.once || terminal.is_json() {
        tokio::select! {
            () = tokio::time::sleep(SECOND) => {}
            () = signals.stop().cancelled() => bail!("stopped."),
        }
        let frame = look.look().await?;
        return terminal.result(frame.lines(&title, ALL, ALL).join("\n"), &frame);
    }
    if !std::io::stdout().is_terminal() {
        bail!("standard output is no terminal: --once prints what there is now");
    }
    let quit = CancellationToken::new();
    let screen = Screen::open(quit.clone())?;
    let title = format!("{title}, every {} s; q quits", arguments.every.as_secs());
    let mut shown = first;
    let mut trouble = None;
    let mut looks = tokio::time::interval(arguments.every);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    looks.tick().await;
    loop {
        let title = trouble.as_ref().unwrap_or(&title);
        let (columns, rows) = Screen::size();
        screen.draw(&shown.lines(title, columns, rows))?;
        tokio::select! {
            () = signals.stop().cancelled() => return Ok(()),
            () = quit.cancelled() => return Ok(()),
            error = database.gone() => return Err(error),
            _ = looks.tick() => {}
        }
        let looked = tokio::select! {
            looked = look.look() => looked,
            () = signals.stop().cancelled() => return Ok(()),
            () = quit.cancelled() => return Ok(()),
        };
        trouble = match looked {
            Ok(frame) => {
                shown = frame;
                None
            }
            Err(error) => Some(format!("this is old: {error:#}")),
        };
    }
}

impl Look<'_> {
    async fn look(&mut self) -> anyhow::Result<Frame> {
        // Taken out, so that what fails leaves no broken connection behind.
        let client = self.client.take();
        let read = async {
            let client = match client {
                Some(client) => client,
                None => self.address.connect().await?,
            };
            let snapshot = Snapshot::read(&client).await?;
            anyhow::Ok((client, snapshot))
        };
        let read = tokio::time::timeout(WITHIN, read).await;
        let (client, snapshot) = read.context("the database does not answer")??;
        self.client = Some(client);
        let at = self.begun.elapsed().as_secs_f64();
        let queues = Scope::default().watched(&snapshot.counters);
        self.history
            .add(Reading { at, queues }, self.limits.lasting);
        let alerts = self.history.findings(&self.limits);
        let now = Completed::of(&snapshot, at);
        let frame = Frame::of(&snapshot, &now, self.then.as_ref(), alerts);
        self.then = Some(now);
        Ok(frame)
    }
}
