//! `posthaste top`: the overview in a terminal, for use on a server.

mod screen;
mod view;

use std::io::IsTerminal as _;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use posthaste_observe::{Snapshot, Thresholds};
use ratatui::crossterm::event::Event;
use ratatui::text::Text;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::MissedTickBehavior;

use crate::cached_connection::{self, CachedConnection, READ_TIMEOUT};
use crate::database::Database;
use crate::failure;
use crate::observe::frame::{CompletedTotals, Frame};
use crate::options::parse_duration_between;
use crate::signals::Signals;
use crate::terminal::{Terminal, escape_name};
use crate::thresholds;
use screen::Screen;
use view::{Action, KeyRequest, View};

/// Show a live view of queues, rates, findings and transactions that hold back vacuum; press ? for
/// keys
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Time between refreshes
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2s",
        value_parser = parse_duration_between(1, 86_400)
    )]
    every: Duration,

    /// Allow keys to change queues: p pauses the selected queue, r resumes it
    #[arg(long)]
    operate: bool,

    /// Print one frame, measured over one second, and exit; implied by --json
    #[arg(long)]
    once: bool,
}

/// Time between the two reads of `--once`.
const ONCE_INTERVAL: Duration = Duration::from_secs(1);
/// The number of rows for output that is printed, not drawn: nothing is left out.
const ALL_ROWS: usize = usize::MAX;

/// The state of repeated reads of the database.
struct FrameReader {
    connection: CachedConnection,
    thresholds: Thresholds,
    then: Option<CompletedTotals>,
    begun: Instant,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let mut reader = FrameReader {
        connection: CachedConnection::new(database.address()),
        thresholds: thresholds::read()?,
        then: None,
        begun: Instant::now(),
    };
    let first = reader.read().await?;
    let title = format!("posthaste at {}", database.address().host_and_port());
    if arguments.once || terminal.is_json() {
        tokio::select! {
            () = tokio::time::sleep(ONCE_INTERVAL) => {}
            () = signals.stop_token().cancelled() => bail!("stopped."),
        }
        let frame = reader.read().await?;
        return terminal.print_result(Text::from(frame.lines(&title, ALL_ROWS, None)), &frame);
    }
    if !std::io::stdout().is_terminal() {
        bail!("standard output is not a terminal. Use --once to print one frame.");
    }
    let (heard, events) = mpsc::unbounded_channel();
    let screen = Screen::open(heard).context("cannot draw on the terminal")?;
    let title = format!(
        "{title}, every {} s; ? for keys, q quits",
        arguments.every.as_secs()
    );
    let mut drawn = LiveView {
        screen,
        events,
        title,
        trouble: None,
        view: View::new(arguments.operate),
        shown: first,
    };
    tokio::select! {
        ended = drawn.run_until_quit(&mut reader, arguments.every) => ended,
        () = signals.stop_token().cancelled() => Ok(()),
        error = database.wait_until_gone() => Err(error),
    }
}

/// The screen and its content.
struct LiveView {
    screen: Screen,
    events: UnboundedReceiver<Event>,
    title: String,
    /// The error because of which the frame is old.
    trouble: Option<String>,
    view: View,
    shown: Frame,
}

impl LiveView {
    /// Draws, reads and handles keys until the user quits.
    async fn run_until_quit(
        &mut self,
        reader: &mut FrameReader,
        every: Duration,
    ) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            self.draw()?;
            tokio::select! {
                Some(event) = self.events.recv() => {
                    match self.view.handle_key(&event, &mut self.shown) {
                        KeyRequest::Nothing => {}
                        KeyRequest::Quit => return Ok(()),
                        KeyRequest::Suspend => self.screen.suspend().await?,
                        KeyRequest::Act(action) => self.act(reader, &action).await,
                    }
                }
                _ = ticks.tick(), if !self.view.is_held() => {
                    if !self.refresh(reader).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        let title = self.trouble.as_ref().unwrap_or(&self.title);
        let (view, shown) = (&self.view, &self.shown);
        Ok(self.screen.draw(|frame| {
            let area = frame.area();
            frame.render_widget(view.text(shown, title, area.height.into()), area);
        })?)
    }

    /// Reads the database; returns false if the user quits before the end. Other keys move and
    /// sort, and none acts.
    async fn refresh(&mut self, reader: &mut FrameReader) -> anyhow::Result<bool> {
        let mut reading = pin!(reader.read());
        let read = loop {
            tokio::select! {
                outcome = &mut reading => break outcome,
                Some(event) = self.events.recv() => {
                    match self.view.handle_key(&event, &mut self.shown) {
                        KeyRequest::Nothing => {}
                        KeyRequest::Quit => return Ok(false),
                        KeyRequest::Suspend => self.screen.suspend().await?,
                        KeyRequest::Act(_) => {
                            let message = "a read is in progress; press the key again";
                            self.view.show_message(message.to_owned());
                        }
                    }
                    self.draw()?;
                }
            }
        };
        self.trouble = match read {
            Ok(frame) => {
                self.shown = frame;
                self.view.sort_queues(&mut self.shown);
                None
            }
            Err(error) => Some(format!("outdated: {error:#}")),
        };
        Ok(true)
    }

    async fn act(&mut self, reader: &mut FrameReader, action: &Action) {
        let done = tokio::time::timeout(READ_TIMEOUT, reader.act(action)).await;
        let queue = escape_name(&action.queue);
        let message = match (done, action.pauses) {
            (Err(_), _) => "the database does not answer".to_owned(),
            (Ok(Err(error)), _) => failure::error_line(&error),
            (Ok(Ok(true)), true) => format!("queue {queue} is paused"),
            (Ok(Ok(false)), true) => format!("queue {queue} is already paused"),
            (Ok(Ok(true)), false) => format!("queue {queue} is resumed"),
            (Ok(Ok(false)), false) => format!("queue {queue} is not paused"),
        };
        self.view.show_message(message);
    }
}

impl FrameReader {
    /// Executes an action; returns whether it changed anything.
    async fn act(&mut self, action: &Action) -> anyhow::Result<bool> {
        let client = self.connection.take_or_connect().await?;
        let mut queues = posthaste::Client::new(posthaste::Unnamed(&client));
        let changed = match action.pauses {
            true => queues.pause(&action.queue).await?,
            false => queues.resume(&action.queue).await?,
        };
        self.connection.put_back(client);
        Ok(changed)
    }

    async fn read(&mut self) -> anyhow::Result<Frame> {
        let read = async {
            let client = self.connection.take_or_connect().await?;
            let snapshot = cached_connection::read_bounded(&client, async {
                let mut snapshot = Snapshot::read(&client).await?;
                snapshot.read_syncs(&client).await?;
                Ok(snapshot)
            });
            let snapshot = snapshot.await?;
            self.connection.put_back(client);
            anyhow::Ok(snapshot)
        };
        let read = tokio::time::timeout(READ_TIMEOUT, read).await;
        let snapshot = read.context("the database does not answer")??;
        let at = self.begun.elapsed().as_secs_f64();
        let now = CompletedTotals::new(&snapshot, at);
        let frame = Frame::new(&snapshot, &now, self.then.as_ref(), &self.thresholds);
        self.then = Some(now);
        Ok(frame)
    }
}
