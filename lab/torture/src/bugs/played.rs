//! Runs a round with a bug.

use std::time::Instant;

use posthaste_testkit::PgVersion;

use super::Bug;
use crate::plan::{Counts, RoundPlan};
use crate::round::{self, Environment, Round};

impl Bug {
    /// Runs a round with this bug and this many jobs, and reports which of the expected rules
    /// detected it.
    pub async fn play(
        &self,
        environment: &Environment,
        server: PgVersion,
        seed: u64,
        jobs: u64,
    ) -> anyhow::Result<Caught> {
        let started = Instant::now();
        let plan = RoundPlan {
            processes: self.processes,
            pace: self.pace,
            hostile: false,
            clocked: self.clocked,
            fails_over: self.fails_over,
            server: self.server(server).name().to_owned(),
            faults: Counts::from_iter(self.faults.iter().copied()),
            jobs,
        };
        let round = round::play(environment, &plan, seed, Some(self)).await?;
        let by = round
            .findings
            .iter()
            .find(|finding| self.rules.contains(&finding.rule));
        Ok(Caught {
            name: self.name,
            by: by.map(ToString::to_string),
            seconds: started.elapsed().as_secs_f64(),
            round,
        })
    }

    /// The server of its round: older ones synchronize no slots.
    fn server(&self, wanted: PgVersion) -> PgVersion {
        match wanted {
            PgVersion::V15 | PgVersion::V16 if self.fails_over => PgVersion::V18,
            wanted => wanted,
        }
    }
}

/// The result for a bug.
#[derive(Debug)]
pub struct Caught {
    /// The name of the bug.
    pub name: &'static str,
    /// The finding of an expected rule; `None` if the bug was not detected.
    pub by: Option<String>,
    /// The duration in seconds.
    pub seconds: f64,
    /// The complete result of the round.
    pub round: Round,
}
