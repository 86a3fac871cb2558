//! The state that all requests share.

use std::sync::Arc;

use deadpool_postgres::Pool;
use tokio::sync::Semaphore;

use crate::Settings;
use crate::bulk::Driver;
use crate::collector::Collector;
use crate::redact::Redactor;
use crate::token::TokenAuth;
use crate::two_phase::TwoPhase;

/// Open pages that receive updates at the same time.
const MAX_STREAMS: usize = 500;

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) pool: Pool,
    pub(crate) settings: Settings,
    pub(crate) secrets: Arc<Redactor>,
    pub(crate) collector: Arc<Collector>,
    pub(crate) driver: Arc<Driver>,
    pub(crate) token_auth: TokenAuth,
    pub(crate) two_phase: Option<TwoPhase>,
    /// One permit for each page that receives updates.
    pub(crate) streams: Arc<Semaphore>,
}

impl App {
    pub(crate) fn new(pool: Pool, settings: Settings) -> Self {
        let collector = Collector::new(pool.clone(), settings.thresholds.clone());
        let collector = Arc::new(collector);
        let secrets = Arc::new(Redactor::new(&settings));
        let may_act = settings.lets_anybody_act();
        Self {
            driver: Driver::new(pool.clone(), &secrets, &collector, may_act),
            collector,
            secrets,
            token_auth: TokenAuth::new(&settings.access),
            two_phase: settings.two_phase.clone().map(TwoPhase::new),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            pool,
            settings,
        }
    }
}
