//! Operations on captures: install, begin again, copy, skip, pause, remove, list.

use posthaste::Database;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::capture::Capture;
use crate::error::Error;
use crate::lsn::Lsn;
use crate::opening::open_feed;
use crate::overview::{CopyOverview, Gap, Installation, Overview, PauseOutcome};
use crate::position::Position;
use crate::requirements::{check_origin, check_server, check_table, decide_failover};
use crate::slot::gap_reason;
use crate::source::{Source, TableName};
use crate::store::outbox::Deletion;
use crate::store::{self, Store};

/// Lists the captures of a database.
pub async fn list_captures(client: &Client) -> Result<Vec<Overview>, posthaste::Error> {
    store::operate::list_captures(client).await
}

/// Lists gaps, the newest first, of one capture or of all.
pub async fn list_gaps(client: &Client, name: Option<&str>) -> Result<Vec<Gap>, posthaste::Error> {
    store::operate::list_gaps(client, name).await
}

/// Accepts a gap. Returns whether one with this id was not accepted yet.
pub async fn accept_gap(client: &Client, id: i64) -> Result<bool, posthaste::Error> {
    store::operate::accept_gap(client, id).await
}

/// Lists copies, the newest first, of one capture or of all.
pub async fn list_copies(
    client: &Client,
    name: Option<&str>,
) -> Result<Vec<CopyOverview>, posthaste::Error> {
    store::copy::list_copies(client, name).await
}

/// Cancels the copy of a table. Returns whether one was running.
pub async fn cancel_copy(
    client: &Client,
    name: &str,
    table: &TableName,
) -> Result<bool, posthaste::Error> {
    store::copy::cancel_copy(client, name, table).await
}

/// Pauses a capture: it captures nothing, and the server keeps its log.
pub async fn pause(client: &Client, name: &str) -> Result<PauseOutcome, posthaste::Error> {
    store::operate::set_paused(client, name, true).await
}

/// Resumes a capture.
pub async fn resume(client: &Client, name: &str) -> Result<PauseOutcome, posthaste::Error> {
    store::operate::set_paused(client, name, false).await
}

impl Capture {
    /// Creates the publication, the slot and the first mark, each if it is missing. Refuses to
    /// create a publication that would make statements of applications fail.
    pub async fn install(&self, database: &Database) -> Result<Installation, Error> {
        let store = Store::open(database, &self.name).await?;
        let slot = store.find_slot(&self.slot).await?;
        let server = store.server_settings().await?;
        check_server(&server, slot.is_some()).map_err(Error::stopped)?;
        check_origin(self.options.local_only, server.version).map_err(Error::stopped)?;
        let is_failover = self.wants_failover(server.version)?;
        for table in store.candidate_tables(&self.source).await? {
            check_table(&table, &self.source).map_err(Error::stopped)?;
        }
        self.prepare_deletion(&store).await?;
        let installed = store.find_installed().await?;
        if let Some(other) = installed.as_ref().filter(|one| one.slot != self.slot) {
            return Err(Error::stopped(format!(
                "it is installed with another slot, {}: set that slot again, or run 'posthaste \
                 capture remove {}' first",
                other.slot, self.name
            )));
        }
        if let Some(lacking) = installed.as_ref().filter(|one| !one.is_published) {
            let (name, publication) = (&self.name, &lacking.publication);
            return Err(Error::stopped(format!(
                "its publication {publication} was dropped or recreated: 'posthaste capture begin \
                 {name}' restarts the capture"
            )));
        }
        self.ensure_publication(&store, server.version).await?;
        if let Some(installed) = installed {
            let mark = store.read_mark(installed.epoch).await?;
            let done = mark.map_or(Lsn(0), |mark| mark.done);
            if let Some(reason) = gap_reason(slot.as_ref(), done) {
                let name = &self.name;
                return Err(Error::stopped(format!(
                    "changes are lost: {reason}. 'posthaste capture begin {name}' restarts the \
                     capture"
                )));
            }
            if slot.is_some_and(|slot| slot.is_failover != is_failover) {
                self.change_failover(database, is_failover).await?;
            }
            return Ok(self.to_installation(true, done));
        }
        let begins = match slot {
            Some(slot) if !slot.is_ours => return Err(self.foreign_slot()),
            Some(slot) if slot.is_active => {
                let name = &self.slot;
                return Err(Error::stopped(format!(
                    "the slot {name} is being read: stop the process that reads it, or choose \
                     another name"
                )));
            }
            // An earlier installation stopped here, and the slot was not read since.
            Some(slot) => slot.confirmed,
            None => store.create_slot(&self.slot, is_failover).await?,
        };
        let names = (&*self.slot, &*self.slot);
        store
            .transaction("cannot install the capture", async {
                store.register_capture(Uuid::new_v4(), names, begins).await
            })
            .await?;
        Ok(self.to_installation(false, begins))
    }

    /// How captured rows of the outbox are deleted, if they are.
    pub(crate) async fn prepare_deletion(&self, store: &Store) -> Result<Option<Deletion>, Error> {
        match &self.source {
            Source::Outbox { table, .. } if self.options.outbox_delete => {
                let deletion = store.prepare_deletion(table).await?;
                deletion.map(Some).map_err(Error::stopped)
            }
            _ => Ok(None),
        }
    }

    fn wants_failover(&self, version: i32) -> Result<bool, Error> {
        decide_failover(self.options.failover, version).map_err(Error::stopped)
    }

    /// Makes the server synchronize the slot to its standbys, or stop that.
    async fn change_failover(&self, database: &Database, is_on: bool) -> Result<(), Error> {
        let mut feed = open_feed(self.server.as_ref().unwrap_or(database)).await?;
        let altered = feed.set_failover(&self.slot, is_on).await;
        altered.map_err(|error| match error.is_in_use() {
            true => Error::stopped(format!(
                "failover cannot change while the capture runs: run 'posthaste capture pause {}' \
                 first",
                self.name
            )),
            false => error,
        })
    }

    fn to_installation(&self, was_there: bool, begins: Lsn) -> Installation {
        Installation {
            name: self.name.clone(),
            slot: self.slot.clone(),
            was_there,
            begins,
        }
    }

    /// Creates the publication. It comes before the slot, because an older slot cannot use it.
    async fn ensure_publication(&self, store: &Store, version: i32) -> Result<(), Error> {
        let Some(published) = store.publication_state(&self.slot).await? else {
            let statement = store
                .publication_statement(&self.slot, &self.source, version)
                .await?;
            return store.create_publication(&statement, &self.source).await;
        };
        let tables = self.source.tables();
        let mut tables: Vec<String> = tables.iter().map(ToString::to_string).collect();
        tables.sort_unstable();
        let mut found = published.tables;
        found.sort_unstable();
        if published.has_more || found != tables {
            return Err(Error::stopped(format!(
                "the publication {} has other tables than posthaste.toml lists ({}): drop it, or \
                 alter it",
                self.slot,
                found.join(", ")
            )));
        }
        Ok(())
    }

    /// The statements of the installation, for a role that may run them.
    pub async fn statements(&self, database: &Database) -> Result<Vec<String>, Error> {
        let store = Store::open(database, &self.name).await?;
        let version = store.server_settings().await?.version;
        let is_failover = self.wants_failover(version)?;
        let publication = store
            .publication_statement(&self.slot, &self.source, version)
            .await?;
        let slot = store.slot_statement(&self.slot, is_failover).await?;
        Ok(vec![publication, slot])
    }

    /// Replaces a lost or misplaced slot, and records the changes between as a gap.
    pub async fn begin(&self, database: &Database) -> Result<Installation, Error> {
        let store = Store::open(database, &self.name).await?;
        let installed = store.require_installed().await?;
        let server = store.server_settings().await?;
        let slot = store.find_slot(&self.slot).await?;
        check_server(&server, slot.is_some()).map_err(Error::stopped)?;
        let is_failover = self.wants_failover(server.version)?;
        self.ensure_publication(&store, server.version).await?;
        match slot {
            Some(slot) if !slot.is_ours => return Err(self.foreign_slot()),
            Some(_) => store.drop_slot(&self.slot).await?,
            None => {}
        }
        if installed.slot != self.slot {
            drop_parts(&store, &installed.slot, &installed.publication).await?;
        }
        let begins = store.create_slot(&self.slot, is_failover).await?;
        let names = (&*self.slot, &*self.slot);
        let tables = self.table_names();
        store
            .begin_again(installed.epoch, Uuid::new_v4(), names, begins, &tables)
            .await?;
        Ok(self.to_installation(false, begins))
    }

    /// Requests a copy of the rows of a table, or of those for which an SQL expression is true. The
    /// process that runs the capture reads them. Returns `false` if a copy of the table is running.
    pub async fn request_copy(
        &self,
        database: &Database,
        table: &TableName,
        filter: Option<&str>,
    ) -> Result<bool, Error> {
        let store = Store::open(database, &self.name).await?;
        let installed = store.require_installed().await?;
        let columns = self
            .source
            .captured_columns(table)
            .map_err(Error::stopped)?;
        let described = store
            .describe_table(table, columns, &installed.publication)
            .await?
            .map_err(Error::stopped)?;
        // An invalid expression is refused at once.
        let whole = self.source.copy_filter(table, filter);
        store
            .read_page(&described, whole.as_deref(), None, 1, &[])
            .await?;
        store.begin_copy(table, filter).await
    }

    /// Requests copies of all its tables.
    pub async fn request_copies(&self, database: &Database) -> Result<(), Error> {
        for table in self.source.tables() {
            self.request_copy(database, table, None).await?;
        }
        Ok(())
    }

    /// Skips a change that cannot be captured, and records it as a gap.
    pub async fn skip(&self, database: &Database, position: Position) -> Result<(), Error> {
        let store = Store::open(database, &self.name).await?;
        let installed = store.require_installed().await?;
        let tables = self.table_names();
        store.record_skip(installed.epoch, position, &tables).await
    }

    /// Drops the slot and the publication, and removes the capture from the database. An installed
    /// capture may have another slot than the settings name.
    pub async fn remove(&self, database: &Database) -> Result<(), Error> {
        let store = Store::open(database, &self.name).await?;
        let (name, publication) = match store.find_installed().await? {
            Some(installed) => (installed.slot, installed.publication),
            None => (self.slot.clone(), self.slot.clone()),
        };
        drop_parts(&store, &name, &publication).await?;
        store.delete_capture().await
    }

    fn table_names(&self) -> Vec<String> {
        let tables = self.source.tables();
        tables.iter().map(ToString::to_string).collect()
    }

    fn foreign_slot(&self) -> Error {
        Error::stopped(format!(
            "the slot {} is of another database or for another plugin: choose another name, or \
             drop it",
            self.slot
        ))
    }
}

/// Drops a slot, unless something else owns it, and a publication, each if it exists.
async fn drop_parts(store: &Store, slot: &str, publication: &str) -> Result<(), Error> {
    let found = store.find_slot(slot).await?;
    if found.is_some_and(|found| found.is_ours) {
        store.drop_slot(slot).await?;
    }
    store.drop_publication(publication).await
}
