//! The routes of the console.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use deadpool_postgres::Pool;

use crate::app::App;
use crate::{Settings, guard, headers, pages, sampler};

/// The largest form that is accepted, in bytes.
const MAX_FORM_BYTES: usize = 256 * 1024;

/// Returns the console of the database of this pool; a few connections are enough. It shows what
/// the role of the pool can read: with `posthaste_observer` and `pg_read_all_stats` it shows
/// everything. Actions need the rights of `posthaste_worker`.
///
/// If users may act and the role of the pool may too, the console takes samples for its charts
/// while the router exists: one in each minute in which no worker took one. This needs a Tokio
/// runtime when the router is created.
///
/// If users may act, a task of the console processes actions by filter, and continues those of
/// other consoles that have stopped. It ends with the router.
///
/// The console is served at `/`, or under the path of a reverse proxy, and hides secrets: see
/// [`Settings`].
///
/// ```no_run
/// use posthaste_console::{Access, Role, Settings, router};
///
/// # fn example(pool: deadpool_postgres::Pool, token: String) -> axum::Router {
/// let settings = Settings {
///     role: Role::Operator,
///     access: Access::Token(token),
///     ..Settings::default()
/// };
/// router(pool, settings)
/// # }
/// ```
pub fn router(pool: Pool, settings: Settings) -> Router {
    let prefix = settings.path_prefix.clone();
    let app = Arc::new(App::new(pool, settings));
    sampler::start(&app);
    app.driver.start();
    let router = Router::new()
        .route("/", get(pages::overview::show))
        .route("/queue", get(pages::queue::show))
        .route("/queues", get(pages::queues::show))
        .route("/queues/pause", post(pages::queues::pause))
        .route("/queues/resume", post(pages::queues::resume))
        .route("/queues/limit", post(pages::queues::limit))
        .route("/queues/keep", post(pages::queues::keep))
        .route(
            "/queues/drain",
            get(pages::drain::show).post(pages::drain::begin),
        )
        .route("/jobs", get(pages::jobs::show))
        .route("/jobs/retry", post(pages::act::retry))
        .route("/jobs/cancel", post(pages::act::cancel))
        .route("/jobs/redrive", post(pages::act::redrive))
        .route("/jobs/delete", post(pages::act::delete))
        .route("/jobs/{id}", get(pages::job::show))
        .route("/scheduled", get(pages::jobs::scheduled))
        .route("/periodic", get(pages::periodic::show))
        .route("/periodic/run", post(pages::periodic::run_now))
        .route("/periodic/off", post(pages::periodic::switch_off))
        .route("/periodic/on", post(pages::periodic::switch_on))
        .route("/dead", get(pages::jobs::dead))
        .route("/destinations", get(pages::destinations::show))
        .route("/transactions", get(pages::transactions::show))
        .route("/two-phase", get(pages::two_phase::show))
        .route("/captures", get(pages::captures::show))
        .route("/captures/pause", post(pages::captures::pause))
        .route("/captures/resume", post(pages::captures::resume))
        .route("/captures/accept", post(pages::captures::accept_gap))
        .route("/sync", get(pages::sync::show))
        .route(
            "/sync/reindex",
            get(pages::reindex::preview).post(pages::reindex::begin),
        )
        .route("/workers", get(pages::workers::show))
        .route("/settings", get(pages::settings::show))
        .route(
            "/bulk",
            get(pages::bulk_preview::preview).post(pages::bulk_preview::begin),
        )
        .route("/bulk/{id}", get(pages::bulk_progress::show))
        .route("/bulk/{id}/stop", post(pages::bulk_progress::stop))
        .route(
            "/bulk/{id}/continue",
            post(pages::bulk_progress::continue_action),
        )
        .route("/bulk-actions", get(pages::bulk_progress::list))
        .route("/events", get(pages::live::events))
        .route("/login", get(pages::login::show).post(pages::login::log_in))
        .route("/logout", post(pages::login::log_out))
        .route("/assets/console.css", get(pages::assets::style))
        .route("/assets/console.js", get(pages::assets::script))
        .fallback(pages::not_found)
        .method_not_allowed_fallback(pages::method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
        .layer(from_fn_with_state(Arc::clone(&app), guard::authenticate))
        .layer(from_fn_with_state(Arc::clone(&app), headers::with_headers))
        .route("/live", get(pages::health::live))
        .route("/ready", get(pages::health::ready))
        .layer(from_fn(headers::forbid_caching))
        .with_state(app);
    prefix.mount(router)
}
