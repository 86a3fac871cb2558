//! Waits until this process may work the store. In a copy of another site's store nothing is
//! claimed, sent or maintained before.

use std::time::Duration;

use deadpool_postgres::Pool;

use super::Process;
use crate::error::{Error, ErrorCause, ErrorKind};
use crate::periodic::Periodic;
use crate::store;

/// Time between two attempts to register; short, so that an adoption takes effect soon.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl Process {
    /// Completes when the worker is registered, when registration fails for another reason, or when
    /// the worker stops.
    pub(super) async fn wait_for_site(&self, periodic: Vec<Periodic>) {
        let mut is_told = false;
        loop {
            let worker = self.claimer.registration.worker().await;
            self.admission.record(&worker);
            match worker {
                Err(error) if error.is_other_site() => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::error!(%error, "another site owns this store; the worker waits");
                    }
                }
                Ok(_) if is_told => {
                    tracing::warn!("this site owns the store now; the worker starts");
                    break;
                }
                _ => break,
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY_INTERVAL) => {}
                () = self.claimer.stopping.cancelled() => return,
            }
        }
        if let Err(error) = save_schedules(&self.pool, &periodic).await {
            tracing::error!(
                %error,
                "the periodic jobs of this worker could not be saved; restart it to save them"
            );
        }
    }
}

async fn save_schedules(pool: &Pool, periodic: &[Periodic]) -> Result<(), Error> {
    if periodic.is_empty() {
        return Ok(());
    }
    let client = pool.get().await;
    let client =
        client.map_err(|error| Error::from(ErrorKind::Connect(ErrorCause::from_error(error))))?;
    for one in periodic {
        store::periodic::put(&client, one).await?;
    }
    Ok(())
}
