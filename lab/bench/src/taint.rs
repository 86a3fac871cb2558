//! Detects rounds that measure the machine's other work rather than the contestants.
//!
//! The rule is fixed here, before anything is measured, and is written into every report.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::processes::{MachineTicks, TICKS_PER_SECOND, own_nice, tree_ticks};

/// The share of the machine's capacity that a hypervisor may steal or other niced processes may
/// use.
const STOLEN_AND_NICED_LIMIT: f64 = 0.10;

/// The share that processes and kernel threads outside the bench and its server may use. It
/// includes the kernel's writing of dirty pages, hence the wider limit.
const FOREIGN_LIMIT: f64 = 0.20;

/// The rule in words, for reports.
pub(crate) fn rule() -> String {
    format!(
        "a run is tainted when stolen and niced processor time exceed {:.0} % of the machine's \
         capacity while it was \
         measured, or when processes outside the bench and its server used more than {:.0} %; \
         a tainted run takes its \
         whole round out of the medians, and another round is played",
        STOLEN_AND_NICED_LIMIT * 100.0,
        FOREIGN_LIMIT * 100.0
    )
}

/// The use of the machine's CPU time during a measurement. Shares are of the whole capacity: 1.0 is
/// every core for the whole time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProcessorUse {
    pub(crate) busy: f64,
    pub(crate) own: f64,
    pub(crate) foreign: f64,
    pub(crate) niced: f64,
    pub(crate) stolen: f64,
    /// CPU seconds used by the bench and its server together.
    pub(crate) own_seconds: f64,
}

impl ProcessorUse {
    /// The reason why a run with this use does not count, if there is one.
    pub(crate) fn taint(&self) -> Option<String> {
        let disturbed = self.stolen + self.niced;
        if disturbed > STOLEN_AND_NICED_LIMIT {
            return Some(format!(
                "{:.0} % of the processor was stolen or niced",
                disturbed * 100.0
            ));
        }
        if self.foreign > FOREIGN_LIMIT {
            return Some(format!(
                "{:.0} % of the processor went to strangers",
                self.foreign * 100.0
            ));
        }
        None
    }
}

/// Observes the CPU use from its creation to [`Watch::finish`].
#[derive(Debug)]
pub(crate) struct Watch {
    machine: MachineTicks,
    own: u64,
}

impl Watch {
    /// Begins to observe; the private server must be a descendant of this process.
    pub(crate) fn begin() -> Result<Self> {
        Ok(Self {
            machine: MachineTicks::read()?,
            own: tree_ticks(std::process::id())?,
        })
    }

    /// The use since the beginning.
    pub(crate) fn finish(&self) -> Result<ProcessorUse> {
        let machine = MachineTicks::read()?;
        let own = tree_ticks(std::process::id())?.saturating_sub(self.own);
        let difference = MachineTicks {
            total: machine.total.saturating_sub(self.machine.total),
            idle: machine.idle.saturating_sub(self.machine.idle),
            niced: machine.niced.saturating_sub(self.machine.niced),
            stolen: machine.stolen.saturating_sub(self.machine.stolen),
        };
        Ok(divide(difference, own, own_nice() > 0))
    }
}

fn divide(machine: MachineTicks, own: u64, bench_is_niced: bool) -> ProcessorUse {
    let capacity = machine.total.max(1) as f64;
    let busy = machine.total.saturating_sub(machine.idle + machine.stolen);
    // A niced bench can tell its own niced time from that of others only by its own use.
    let niced = if bench_is_niced {
        machine.niced.saturating_sub(own)
    } else {
        machine.niced
    };
    ProcessorUse {
        busy: busy as f64 / capacity,
        own: own as f64 / capacity,
        foreign: busy.saturating_sub(own) as f64 / capacity,
        niced: niced as f64 / capacity,
        stolen: machine.stolen as f64 / capacity,
        own_seconds: own as f64 / TICKS_PER_SECOND,
    }
}

#[cfg(test)]
mod tests {
    use super::{ProcessorUse, divide, rule};
    use crate::processes::MachineTicks;

    const MACHINE: MachineTicks = MachineTicks {
        total: 1_000,
        idle: 200,
        niced: 50,
        stolen: 40,
    };

    #[test]
    fn time_not_used_by_the_bench_is_foreign() {
        let shares = divide(MACHINE, 700, false);
        assert_eq!(shares.busy, 0.76);
        assert_eq!(shares.foreign, 0.06);
        assert_eq!(shares.niced, 0.05);
        assert_eq!(shares.own_seconds, 7.0);
        assert_eq!(shares.taint(), None);
    }

    #[test]
    fn stolen_and_niced_time_taint_together() {
        let shares = ProcessorUse {
            stolen: 0.06,
            niced: 0.05,
            ..ProcessorUse::default()
        };
        assert_eq!(
            shares.taint().as_deref(),
            Some("11 % of the processor was stolen or niced")
        );
        let below = ProcessorUse {
            stolen: 0.05,
            niced: 0.05,
            ..ProcessorUse::default()
        };
        assert_eq!(below.taint(), None);
    }

    #[test]
    fn foreign_load_taints_even_if_it_is_not_niced() {
        let shares = ProcessorUse {
            foreign: 0.21,
            ..ProcessorUse::default()
        };
        assert_eq!(
            shares.taint().as_deref(),
            Some("21 % of the processor went to strangers")
        );
    }

    #[test]
    fn niced_time_of_the_bench_is_not_foreign() {
        let machine = MachineTicks {
            niced: 720,
            ..MACHINE
        };
        assert_eq!(divide(machine, 700, true).niced, 0.02);
        assert_eq!(divide(machine, 700, false).niced, 0.72);
    }

    #[test]
    fn the_description_of_the_rule_names_its_limits() {
        assert!(rule().contains("exceed 10 %") && rule().contains("more than 20 %"));
    }
}
