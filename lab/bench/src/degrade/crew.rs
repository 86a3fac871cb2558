//! The processes of a run: workers, and the statements that run periodically.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::algorithm::Manner;
use super::drain::{self, Drain, RedisWorker};
use super::ledger::Ledger;
use super::parameters::{Prepared, Values};
use super::scene::Scene;
use super::worker::{Pacing, Worker};
use crate::contestants::posthaste::paced::{Pace, PacedWorker};

/// The workers of one algorithm.
pub(crate) struct Crew {
    deaths: Vec<Arc<Notify>>,
    processes: Vec<PacedWorker>,
}

/// Records in the ledger what the library's handlers do. A job counts as finished when its handler
/// has ended: the library acknowledges it shortly afterwards.
struct Told {
    pacing: Pacing,
    ledger: Arc<Ledger>,
}

impl Pace for Told {
    fn start(&self, number: u64) -> Duration {
        self.ledger.started(number);
        self.pacing.of_job(number)
    }

    fn finish(&self, number: u64) {
        self.ledger.finished(number);
    }
}

impl Crew {
    /// Starts the workers; a library has this many processes.
    pub(crate) async fn start(
        scene: &Scene<'_>,
        processes: usize,
        tasks: &mut JoinSet<Result<()>>,
    ) -> Result<Self> {
        let Scene {
            database,
            algorithm,
            scenario,
            lease,
            ledger,
            going,
            redis: _,
        } = scene;
        let pacing = Pacing::new(scenario, *lease);
        let mut crew = Self {
            deaths: Vec::new(),
            processes: Vec::new(),
        };
        if algorithm.manner == Manner::Library {
            let concurrency = scenario.work.workers.div_ceil(processes);
            for _ in 0..processes {
                let ledger = Arc::clone(ledger);
                let told = Arc::new(Told { pacing, ledger });
                let worker = PacedWorker::start(database, concurrency, *lease, told).await?;
                crew.processes.push(worker);
            }
            return Ok(crew);
        }
        if algorithm.manner == Manner::Drain {
            tasks.spawn(Drain::connect(scene, pacing).await?.work(going.clone()));
            tasks.spawn(drain::rescue(scene).await?);
            for place in 0..scenario.work.workers {
                let worker = RedisWorker::connect(scene, place, pacing).await?;
                crew.deaths.push(worker.death());
                tasks.spawn(worker.work(going.clone()));
            }
            return Ok(crew);
        }
        for _ in 0..scenario.work.workers {
            let batch = scenario.work.batch;
            let worker = Worker::connect(database, algorithm, batch, pacing, ledger).await?;
            crew.deaths.push(worker.death());
            tasks.spawn(worker.work(going.clone()));
        }
        for (every, text) in algorithm.periodic()? {
            let client = database.connect().await?;
            let statement = Prepared::new(&client, "periodic", text).await?;
            let (going, every) = (going.clone(), scenario.real(every));
            let values = Values::new(scenario.work.batch, lease.as_secs_f64());
            tasks.spawn(async move {
                let mut pace = interval(every);
                pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
                while *going.borrow() {
                    pace.tick().await;
                    statement.query(&client, &values).await?;
                }
                Ok(())
            });
        }
        Ok(crew)
    }

    /// Ends one worker in the middle of its work.
    #[cfg(test)]
    pub(crate) fn kill_one(&mut self) {
        if let Some(death) = self.deaths.pop() {
            death.notify_one();
        }
        if let Some(process) = self.processes.pop() {
            process.kill();
        }
    }

    /// Stops the library's workers after finishing their jobs; the others end by themselves.
    pub(crate) async fn stop(self) -> Result<()> {
        for process in self.processes {
            process.stop().await?;
        }
        Ok(())
    }
}
