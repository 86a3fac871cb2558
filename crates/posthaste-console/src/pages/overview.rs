//! The overview for a person on call: findings first, then figures.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use posthaste_observe::{holder_detail, holder_name};

use super::frame::Frame;
use super::page;
use crate::app::App;
use crate::chart::Charts;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::form::Query;
use crate::format;
use crate::guard::Visit;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    figures: Arc<Figures>,
    took: String,
    charts: Charts,
    horizon: Option<OldestHolder>,
}

/// The holder that has held back vacuum longest.
struct OldestHolder {
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
    let figures = app.collector.figures().await?;
    let overview = OverviewPage {
        frame: Frame::new(&app, &visit, &figures, "Overview", "/"),
        charts: super::queue::queue_charts(&app, &fields, &figures, None).await?,
        took: format::precise_duration(figures.snapshot.took.as_secs_f64()),
        horizon: oldest_holder(&app, &figures).await?,
        figures,
    };
    Ok(page(StatusCode::OK, &overview))
}

async fn oldest_holder(app: &App, figures: &Figures) -> Result<Option<OldestHolder>, Fault> {
    let holders = figures.holders();
    let Some(holder) = holders.first() else {
        return Ok(None);
    };
    let by = format::one_line(&holder_name(holder), 80);
    let held = match holder.seconds {
        Some(seconds) => format!("{} by {by}", format::age(seconds)),
        None => format!("by {by}"),
    };
    Ok(Some(OldestHolder {
        held,
        who: format::one_line(&holder_detail(holder), 200),
        queue: super::transactions::queue_cost_text(app, figures).await?,
        tables: super::transactions::table_cost_text(holder.transactions.unwrap_or(0)),
        others: holders.len() - 1,
    }))
}
