//! The lines of a bulk request.

use serde_json::{Map, Value};

use super::index::WriteCondition;
use super::reply::Reply;

/// One action of a bulk request, with the line below it.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) action: String,
    pub(super) index: String,
    pub(super) id: String,
    pub(super) demand: WriteCondition,
    pub(super) pipeline: Option<String>,
    pub(super) by_alias: bool,
    pub(super) body: Value,
}

impl Write {
    /// Parses the writes of a bulk request.
    pub(super) fn parse_all(lines: &[u8]) -> Result<Vec<Self>, Reply> {
        let wrong = || {
            Reply::error(
                400,
                "illegal_argument_exception",
                "Malformed action/metadata line",
            )
        };
        let mut lines = lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let mut writes = Vec::new();
        while let Some(line) = lines.next() {
            let head: Map<String, Value> = serde_json::from_slice(line).map_err(|_| wrong())?;
            let (action, head) = head.into_iter().next().ok_or_else(wrong)?;
            let body = match action.as_str() {
                "delete" => Value::Null,
                _ => {
                    serde_json::from_slice(lines.next().ok_or_else(wrong)?).map_err(|_| wrong())?
                }
            };
            let text = |name: &str| head[name].as_str().unwrap_or_default().to_owned();
            let (version, seq_no) = (head["version"].as_i64(), head["if_seq_no"].as_u64());
            let demand = match (version, head["version_type"].as_str(), seq_no) {
                (Some(version), Some("external"), _) => WriteCondition::Newer(version),
                (Some(version), Some("external_gte"), _) => WriteCondition::NotOlder(version),
                (_, _, Some(seq_no)) => WriteCondition::Seen(
                    seq_no,
                    head["if_primary_term"].as_u64().unwrap_or_default(),
                ),
                _ => WriteCondition::None,
            };
            writes.push(Self {
                index: text("_index"),
                id: text("_id"),
                by_alias: head["require_alias"] == Value::Bool(true),
                pipeline: head["pipeline"].as_str().map(str::to_owned),
                action,
                demand,
                body,
            });
        }
        Ok(writes)
    }
}
