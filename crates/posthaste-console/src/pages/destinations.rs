//! Destinations: the state of each relay, and whether its queue is paused.

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
use crate::guard::Visit;

#[derive(Template)]
#[template(path = "destinations.html")]
struct DestinationsPage {
    frame: Frame,
    figures: Arc<Figures>,
}

impl DestinationsPage {
    fn has_rejections(&self) -> bool {
        let mut relays = self.figures.relays.iter();
        relays.any(|relay| !relay.rejections.is_empty())
    }
}

pub(crate) async fn show(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let frame = Frame::new(&app, &visit, &figures, "Destinations", "/destinations");
    let destinations = DestinationsPage { frame, figures };
    Ok(page(StatusCode::OK, &destinations))
}
