//! `posthaste exporter`: the metrics of a whole database, for Prometheus.

use std::net::SocketAddr;

use crate::database::Database;
use crate::observe::{Collector, ExtraLabels, ListenOptions};
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Serve Prometheus metrics of the whole database until Ctrl-C; run one exporter per database
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Serve /metrics, /live and /ready at this address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9187")]
    listen: SocketAddr,

    #[command(flatten)]
    asked: ExtraLabels,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let address = database.address();
    // A database that is unreachable at the start is an error; a connection that is lost later is
    // reopened.
    drop(address.connect().await?);
    let collector = Collector::new(
        address.clone(),
        arguments.asked.clone(),
        crate::thresholds::read()?,
    );
    let served = ListenOptions::at(arguments.listen).serve(Some(collector), terminal);
    let Some(served) = served.await? else {
        return Ok(());
    };
    tokio::select! {
        () = signals.stop_token().cancelled() => Ok(()),
        error = database.wait_until_gone() => Err(error),
        () = served.report_healthy_forever() => Ok(()),
    }
}
