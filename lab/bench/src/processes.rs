//! Reads `/proc`: the machine's CPU time, the bench's own share of it, and resident memory.

use std::collections::HashMap;
use std::fs;

use anyhow::{Context, Result};

/// CPU time of the whole machine in clock ticks since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct MachineTicks {
    pub(crate) total: u64,
    pub(crate) idle: u64,
    pub(crate) niced: u64,
    pub(crate) stolen: u64,
}

impl MachineTicks {
    /// Reads `/proc/stat`.
    pub(crate) fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        Self::parse(&text).context("/proc/stat has no line for all processors")
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        let [
            user,
            niced,
            system,
            idle,
            waiting,
            interrupt,
            soft,
            stolen,
            ..,
        ] = ticks[..]
        else {
            return None;
        };
        let total = user + niced + system + idle + waiting + interrupt + soft + stolen;
        Some(Self {
            total,
            idle: idle + waiting,
            niced,
            stolen,
        })
    }
}

/// The unit of times in `/proc` on Linux.
pub(crate) const TICKS_PER_SECOND: f64 = 100.0;

/// Ticks used by a process alone; `None` once it has ended.
pub(crate) fn own_ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    ProcessStat::parse(&text).map(|stat| stat.ticks)
}

/// Ticks used by a process, all its descendants, and every descendant that has already been waited
/// for.
pub(crate) fn tree_ticks(root: u32) -> Result<u64> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut used: HashMap<u32, u64> = HashMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // A process may end between the listing and the reading; its parent then counts it.
        let Some(stat) = fs::read_to_string(entry.path().join("stat"))
            .ok()
            .and_then(|text| ProcessStat::parse(&text))
        else {
            continue;
        };
        children.entry(stat.parent).or_default().push(pid);
        used.insert(pid, stat.ticks + stat.waited_ticks);
    }
    let mut total = 0;
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        total += used.get(&pid).copied().unwrap_or_default();
        open.extend(children.remove(&pid).unwrap_or_default());
    }
    Ok(total)
}

/// The nice value of this process.
pub(crate) fn own_nice() -> i64 {
    fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|text| ProcessStat::parse(&text))
        .map_or(0, |stat| stat.nice)
}

/// Memory of one process in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Memory {
    /// All resident memory, including touched shared buffers.
    pub(crate) resident: u64,
    /// The memory that belongs to the process alone.
    pub(crate) anonymous: u64,
    /// The highest resident size until now.
    pub(crate) peak: u64,
}

impl Memory {
    /// Reads `/proc/<pid>/status`; `None` once the process has ended.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = |field: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(field))?;
            line.split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
                .map(|kibibytes| kibibytes * 1024)
        };
        Some(Self {
            resident: bytes("VmRSS:")?,
            anonymous: bytes("RssAnon:")?,
            peak: bytes("VmHWM:")?,
        })
    }
}

#[derive(Debug, PartialEq)]
struct ProcessStat {
    parent: u32,
    ticks: u64,
    waited_ticks: u64,
    nice: i64,
}

impl ProcessStat {
    fn parse(text: &str) -> Option<Self> {
        // The program's name is in parentheses and may contain spaces and parentheses.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            ticks: number(11)? + number(12)?,
            waited_ticks: number(13)? + number(14)?,
            nice: fields.get(16)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{MachineTicks, Memory, ProcessStat, tree_ticks};

    #[test]
    fn cpu_ticks_are_read_by_kind() {
        let text = "cpu  100 20 30 400 50 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        let ticks = MachineTicks {
            total: 621,
            idle: 450,
            niced: 20,
            stolen: 8,
        };
        assert_eq!(MachineTicks::parse(text), Some(ticks));
    }

    #[test]
    fn a_process_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let text = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 11 12 13 14 20 5 1 0 99 0 0";
        let stat = ProcessStat {
            parent: 7,
            ticks: 23,
            waited_ticks: 27,
            nice: 5,
        };
        assert_eq!(ProcessStat::parse(text), Some(stat));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "Name:\tx\nVmHWM:\t     30 kB\nVmRSS:\t     20 kB\nRssAnon:\t     10 kB\n";
        let memory = Memory {
            resident: 20 * 1024,
            anonymous: 10 * 1024,
            peak: 30 * 1024,
        };
        assert_eq!(Memory::parse(text), Some(memory));
    }

    #[test]
    fn resource_usage_of_the_process_tree_is_readable() {
        assert!(tree_ticks(std::process::id()).is_ok());
    }
}
