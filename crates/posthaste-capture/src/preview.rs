//! Shows the next events of a capture without consuming them.

use posthaste::Database;
use uuid::Uuid;

use crate::assemble::Assembler;
use crate::capture::Capture;
use crate::error::Error;
use crate::event::Event;
use crate::opening::open_feed;
use crate::position::Timelines;
use crate::store::Store;

impl Capture {
    /// The next events that it would capture: at least this many if there are, up to the end of
    /// their transaction, which is read as a whole. The slot may be in use.
    pub async fn preview(&self, database: &Database, count: usize) -> Result<Vec<Event>, Error> {
        let store = Store::open(database, &self.name).await?;
        let installed = store.require_installed().await?;
        let mark = store.read_mark(installed.epoch).await?.unwrap_or_default();
        let mut feed = open_feed(self.server.as_ref().unwrap_or(database)).await?;
        let identified = feed.identify().await?;
        let history = feed.timeline_history(identified.timeline).await?;
        drop(feed);
        let timelines = Timelines::parse(identified.timeline, &history).map_err(Error::lost)?;
        // A temporary slot ends with this connection.
        let copy = format!("posthaste_preview_{}", Uuid::new_v4().simple());
        store.copy_slot(&installed.slot, &copy).await?;
        let wanted = (self.source.captures_messages(), self.options.local_only);
        let changes = store
            .peek_changes(&copy, &installed.publication, wanted, count)
            .await?;
        store.drop_slot(&copy).await?;
        let epoch = installed.epoch;
        let mut assembler = Assembler::new(&self.source, epoch, timelines, mark.position);
        let mut events = Vec::new();
        for (record, message) in changes {
            match assembler.read_message(record, message) {
                Ok(step) => events.extend(step.events),
                Err(unreadable) => {
                    let (position, problem) = (unreadable.position, unreadable.problem);
                    return Err(Error::stopped(format!(
                        "the change at {position} cannot be captured: {problem}"
                    )));
                }
            }
        }
        Ok(events)
    }
}
