//! What a person on call sees first: sentences, then figures.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::frame::Frame;
use super::page;
use crate::app::App;
use crate::chart::Charts;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::form::Query;
use crate::guard::Visit;
use crate::words;

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    frame: Frame,
    figures: Arc<Figures>,
    took: String,
    charts: Charts,
    horizon: Option<Horizon>,
}

/// Who keeps vacuum back longest.
struct Horizon {
    held: String,
    who: String,
    queue: String,
    tables: String,
    others: usize,
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Result<Response, Fault> {
    let figures = app.collector.seen().await?;
    let overview = Overview {
        frame: Frame::new(&app, &visit, &figures, "Overview", "/").with_notice(&fields),
        charts: super::queue::charts(&app, &fields, &figures, None).await?,
        took: words::span(figures.snapshot.took.as_secs_f64()),
        horizon: horizon(&figures),
        figures,
    };
    Ok(page(StatusCode::OK, &overview))
}

fn horizon(figures: &Figures) -> Option<Horizon> {
    let holder = figures.holders().first()?;
    let by = super::transactions::named(holder);
    let held = match holder.seconds {
        Some(seconds) => format!("{} by {by}", words::age(seconds)),
        None => format!("by {by}"),
    };
    let segments = figures.snapshot.server.segments_behind;
    Some(Horizon {
        held,
        who: words::plain(&holder.detail, 200),
        queue: super::transactions::queue_pays(segments),
        tables: super::transactions::tables_pay(holder.behind),
        others: figures.holders().len() - 1,
    })
}
