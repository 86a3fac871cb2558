//! Reports that Sidekiq's processes write every few seconds.

use crate::destination::redis::Redis;
use crate::destination::redis::queues_without_readers;

#[derive(serde::Deserialize)]
struct ProcessInfo {
    #[serde(default)]
    queues: Vec<String>,
}

/// Returns which of these queues no process reads.
pub(super) async fn queues_without_processes(
    redis: &Redis,
    queues: &[String],
) -> Result<Vec<String>, String> {
    let mut names = redis::pipe();
    names.cmd("SMEMBERS").arg("processes");
    let names: Vec<Vec<String>> = redis.read_all(&mut names).await?;
    let mut infos = redis::pipe();
    for name in names.iter().flatten() {
        infos.cmd("HGET").arg(name).arg("info");
    }
    // A dead process leaves only its name.
    let infos: Vec<Option<String>> = redis.read_all(&mut infos).await?;
    let infos = infos.iter().flatten();
    let read = infos.filter_map(|info| serde_json::from_str::<ProcessInfo>(info).ok());
    Ok(queues_without_readers(
        queues,
        read.flat_map(|info| info.queues),
    ))
}
