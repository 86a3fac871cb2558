//! The machine of a report, as far as it matters for the figures; never its name.

use std::fs;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::processes::own_nice;

/// Facts that a reader needs to interpret absolute figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) kernel: String,
    pub(crate) memory_bytes: u64,
    /// The nice value of the bench and its server.
    pub(crate) nice: i64,
}

impl Machine {
    /// Describes this machine.
    pub(crate) fn describe() -> Result<Self> {
        let processors = fs::read_to_string("/proc/cpuinfo")?;
        let memory = fs::read_to_string("/proc/meminfo")?;
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            processor: field(&processors, "model name")
                .unwrap_or("unknown")
                .to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            memory_bytes: field(&memory, "MemTotal")
                .and_then(|value| value.split(' ').next()?.parse::<u64>().ok())
                .map_or(0, |kibibytes| kibibytes * 1024),
            nice: own_nice(),
        })
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_are_found_by_their_full_name() {
        let text = "MemTotalish: 1 kB\nMemTotal:       24689 kB\n";
        assert_eq!(field(text, "MemTotal"), Some("24689 kB"));
        assert_eq!(field(text, "Mem"), None);
    }
}
