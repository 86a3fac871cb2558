//! A round with a bug in it.

use std::time::Instant;

use posthaste_testkit::PgVersion;

use super::Bug;
use crate::plan::{Counts, RoundPlan};
use crate::round::{self, Environment, Round};

impl Bug {
    /// Plays it for this many jobs, and says which of the rules that must notice did.
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
            server: server.name().to_owned(),
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
}

/// What became of a bug.
#[derive(Debug)]
pub struct Caught {
    /// Which.
    pub name: &'static str,
    /// What was noticed by a rule that must; none when it slipped through.
    pub by: Option<String>,
    /// How long that took.
    pub seconds: f64,
    /// All there is to know.
    pub round: Round,
}
