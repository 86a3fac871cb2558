//! Opens a stream: finds the primary and the options of the stream.

use std::time::Duration;

use posthaste::Database;

use crate::error::Error;
use crate::feed::{DISCONNECT_AFTER, Feed};
use crate::store::IS_STANDBY;

/// Connects to the first host that answers and is not a standby.
pub(crate) async fn open_feed(server: &Database) -> Result<Feed, Error> {
    let mut problem = None;
    for number in 0.. {
        let opened = async {
            let Some(replication) = server.replication(number).await? else {
                return Ok(None);
            };
            let mut feed = Feed::log_in(replication).await?;
            let rows = feed.query(IS_STANDBY).await?;
            let is_standby = rows.first().and_then(|row| row.first()?.as_deref()) == Some("t");
            match is_standby {
                true => Err(Error::lost("the server is a standby")),
                false => Ok(Some(feed)),
            }
        };
        match opened.await {
            Ok(Some(feed)) => return Ok(feed),
            Ok(None) => break,
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    Err(problem.unwrap_or_else(|| Error::lost("the URL of the database names no server")))
}

/// Makes the server release the slot of a lost connection after at most this process's own limit,
/// and sends status messages often enough. With the server's default another process waits for a
/// minute, and without a limit until TCP gives up.
pub(crate) async fn limit_sender_timeout(feed: &mut Feed) {
    let shown = feed.query("SHOW wal_sender_timeout").await;
    let shown = shown.ok().and_then(|rows| rows.into_iter().next()?.pop()?);
    let Some(mut timeout) = shown.as_deref().and_then(parse_duration_setting) else {
        return;
    };
    if timeout.is_zero() || timeout > DISCONNECT_AFTER {
        let milliseconds = DISCONNECT_AFTER.as_millis();
        let set = format!("SET wal_sender_timeout = {milliseconds}");
        if feed.query(&set).await.is_ok() {
            timeout = DISCONNECT_AFTER;
        }
    }
    feed.keep_alive_every(timeout);
}

pub(crate) fn plugin_options(publication: &str, local_only: bool) -> String {
    let origin = if local_only { ", origin 'none'" } else { "" };
    // Marks of copies are messages.
    format!("proto_version '1', publication_names '\"{publication}\"', messages 'true'{origin}")
}

/// Parses a time as `SHOW` prints it.
pub(crate) fn parse_duration_setting(text: &str) -> Option<Duration> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..split].parse().ok()?;
    Some(match &text[split..] {
        "ms" => Duration::from_millis(number),
        "min" => Duration::from_secs(number * 60),
        "h" => Duration::from_secs(number * 3600),
        "d" => Duration::from_secs(number * 86_400),
        _ => Duration::from_secs(number),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse_duration_setting;

    #[test]
    fn parses_durations_of_settings() {
        let read = ["0", "500ms", "60s", "1min", "2h"].map(parse_duration_setting);
        let expected = [0, 500, 60_000, 60_000, 7_200_000].map(Duration::from_millis);
        assert_eq!(read, expected.map(Some));
        assert_eq!(parse_duration_setting("x"), None);
    }
}
