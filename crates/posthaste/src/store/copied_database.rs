//! The site of a process, which decides whether it may work on a store
//! (sql/functions/copied_database.sql).

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use deadpool_postgres::Pool;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, IsolationLevel};

use super::place::addresses;
use super::rebase::BEGIN_WITHOUT_LOCK_TIMEOUT;
use crate::error::{Error, ErrorCause, ErrorKind};

/// The identity of a process for the store.
#[derive(Debug, Default)]
pub(crate) struct Site {
    /// The configured name.
    pub(crate) name: Option<String>,
    /// The addresses that it connects to.
    pub(crate) addresses: Vec<String>,
    /// The last registration, which is also known to a promoted standby.
    admitted: Mutex<Option<(i64, SystemTime)>>,
}

impl Site {
    pub(crate) fn new(name: Option<&str>, pool: &Pool) -> Self {
        Self {
            name: name.map(str::to_owned),
            addresses: addresses(pool),
            admitted: Mutex::default(),
        }
    }

    /// Records that the store admitted this process as that worker, at that time.
    pub(crate) fn record_admission(&self, worker: i64, registered: SystemTime) {
        let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        *admitted = Some((worker, registered));
    }

    fn last_admission(&self) -> (Option<i64>, Option<SystemTime>) {
        let admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        admitted.unzip()
    }

    /// Checks that work may continue in this database: on each new connection, before anything else
    /// is sent, and thoroughly when a worker starts.
    pub(crate) async fn require_admission(
        &self,
        client: &Client,
        thorough: bool,
    ) -> Result<(), Error> {
        let refused = || Error::unsent("nothing can run here");
        let (worker, registered) = self.last_admission();
        // One round trip, like each statement of the engine.
        let (begun, entered, committed) = futures_util::future::join3(
            client.batch_execute(BEGIN_WITHOUT_LOCK_TIMEOUT),
            client.query_typed_one(
                "SELECT posthaste.enter_site($1, $2, $3, $4, $5)",
                &[
                    (&self.name, Type::TEXT),
                    (&self.addresses, Type::TEXT_ARRAY),
                    (&thorough, Type::BOOL),
                    (&worker, Type::INT8),
                    (&registered, Type::TIMESTAMPTZ),
                ],
            ),
            client.batch_execute("COMMIT"),
        )
        .await;
        begun.map_err(refused())?;
        let row = entered.map_err(refused())?;
        committed.map_err(refused())?;
        let why: Option<String> = row.try_get(0).map_err(refused())?;
        fail_if_refused(why)
    }
}

/// Fails if the store returned why another site works on it.
pub(crate) fn fail_if_refused(refused: Option<String>) -> Result<(), Error> {
    match refused {
        Some(why) => Err(ErrorKind::OtherSite(why).into()),
        None => Ok(()),
    }
}

/// A site that may not work on the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRefusal {
    /// The name of the site in the store.
    pub site: String,
    /// Why the processes of the site wait.
    pub reason: String,
}

/// Returns why a worker of the named site, or else of the site that connects as this pool does,
/// would wait in this database; `None` if it would work. Changes nothing.
pub async fn site_refusal(pool: &Pool, site: Option<&str>) -> Result<Option<SiteRefusal>, Error> {
    let site = Site::new(site, pool);
    let client = pool.get().await;
    let client =
        client.map_err(|error| Error::from(ErrorKind::Connect(ErrorCause::from_error(error))))?;
    let row = client
        .query_typed_one(
            "SELECT posthaste.site_label($1, $2), posthaste.site_refusal($1, $2)",
            &[
                (&site.name, Type::TEXT),
                (&site.addresses, Type::TEXT_ARRAY),
            ],
        )
        .await;
    let refusal = row.and_then(|row| {
        let (site, reason) = (row.try_get(0)?, row.try_get::<_, Option<String>>(1)?);
        Ok(reason.map(|reason| SiteRefusal { site, reason }))
    });
    refusal.map_err(Error::postgres("cannot read which site owns the store"))
}

/// The result of [`adopt`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoption {
    /// The site that had the store; `None` if it had no site.
    pub from: Option<String>,
    /// The number of removed jobs; `None` unless `discard` was set.
    pub discarded: Option<u64>,
}

/// Takes over a copy of a store permanently, for the named site, or else for the site that connects
/// as this pool does. Jobs that are enqueued from then on have delivery ids that the original does
/// not assign. With `discard` all jobs that wait there are removed.
///
/// Fails with SQLSTATE 55000 while a worker is alive there, unless `force` is set. The caller must
/// own the schema.
pub async fn adopt(
    pool: &Pool,
    site: Option<&str>,
    force: bool,
    discard: bool,
) -> Result<Adoption, Error> {
    let failed = || Error::postgres("cannot adopt the store");
    let site = Site::new(site, pool);
    let client = pool.get().await;
    let mut client =
        client.map_err(|error| Error::from(ErrorKind::Connect(ErrorCause::from_error(error))))?;
    super::migrate::check_schema(&client).await?;
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .read_only(false)
        .start()
        .await
        .map_err(failed())?;
    let row = transaction
        .query_typed_one(
            "SELECT o_from, o_discarded FROM posthaste.adopt($1, $2, $3, $4)",
            &[
                (&site.name, Type::TEXT),
                (&site.addresses, Type::TEXT_ARRAY),
                (&force, Type::BOOL),
                (&discard, Type::BOOL),
            ],
        )
        .await
        .map_err(failed())?;
    let discarded: Option<i64> = row.try_get(1).map_err(failed())?;
    let adoption = Adoption {
        from: row.try_get(0).map_err(failed())?,
        discarded: discarded.map(i64::unsigned_abs),
    };
    transaction.commit().await.map_err(failed())?;
    Ok(adoption)
}
