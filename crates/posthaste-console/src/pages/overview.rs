//! What a person on call sees first: sentences, then figures.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::frame::Frame;
use super::page;
use crate::app::App;
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
        took: words::span(figures.snapshot.took.as_secs_f64()),
        horizon: horizon(&figures),
        figures,
    };
    Ok(page(StatusCode::OK, &overview))
}

fn horizon(figures: &Figures) -> Option<Horizon> {
    let holder = figures.holders().first()?;
    let name = words::plain(&holder.name, 80);
    let by = match holder.kind.as_str() {
        "prepared" => format!("the prepared transaction {name}"),
        "slot" => format!("the replication slot {name}"),
        "replica" => format!("a reader on {name}"),
        _ => name,
    };
    let held = match holder.seconds {
        Some(seconds) => format!("{} by {by}", words::age(seconds)),
        None => format!("by {by}"),
    };
    let segments = figures.snapshot.server.segments_behind;
    Some(Horizon {
        held,
        who: words::plain(&holder.detail, 200),
        queue: match segments {
            ..3 => "Nothing: claims do not care, and segments are truncated.".to_owned(),
            _ => format!("{segments} segments wait to be truncated; claims do not care."),
        },
        tables: match holder.behind {
            0 => "Nothing yet: no transaction has begun since.".to_owned(),
            behind => format!(
                "Rows that died within the last {} cannot be removed.",
                words::counted(behind, "transaction", "transactions")
            ),
        },
        others: figures.holders().len() - 1,
    })
}
