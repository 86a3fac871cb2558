//! Random schedules: programs change rows, write the index directly and enqueue jobs. Concurrent
//! passes run and die. Requests are lost, late, repeated, executed in part, or answered falsely. A
//! seed identifies each schedule. The index must match Postgres at most two polls after the faults
//! end, and after every write that was still in flight has arrived.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fastrand::Rng;
use futures_util::future::BoxFuture;
use posthaste_sync::{
    Index, IndexError, Mark, Pass, Proof, SyncOutcome, SyncRequest, Write, WriteOutcome,
};

use super::seeds::all;
use super::version_blind::VersionBlind;
use super::world::{Inner, Line, Request, Twin, World};

const IDS: u32 = 6;

#[test]
fn the_index_converges_within_two_polls_after_any_fault() {
    let schedules = all("memory", |seed| run(seed, Twin::None, in_memory));
    posthaste_testkit::ran::count("schedules", schedules);
}

#[test]
fn fault_schedules_detect_a_presence_only_check() {
    assert_ne!(failing(Twin::Presence), 0);
}

#[test]
fn fault_schedules_detect_a_last_write_wins_index() {
    assert_ne!(failing(Twin::LastWins), 0);
}

/// Returns how many of 200 schedules end with an inconsistent index.
fn failing(twin: Twin) -> usize {
    let fails = |seed: &u64| run(*seed, twin, in_memory).is_err();
    (0..200).filter(fails).count()
}

pub fn in_memory(world: &World, _: u64) -> Arc<dyn Index> {
    Arc::new(world.clone())
}

/// A worker's running pass.
struct Running {
    pass: BoxFuture<'static, Vec<SyncOutcome>>,
    jobs: Vec<u64>,
}

pub struct Schedule {
    pub world: World,
    pub rng: Rng,
    workers: Vec<Option<Running>>,
    index: Arc<dyn Index>,
    /// The direct writes of programs, one request each.
    directs: Vec<BoxFuture<'static, ()>>,
}

/// Runs a schedule with an index in this world, or with one whose requests go through it.
pub fn run(
    seed: u64,
    twin: Twin,
    index: impl FnOnce(&World, u64) -> Arc<dyn Index>,
) -> Result<(), String> {
    fastrand::seed(seed);
    let world = World::default();
    world.inner().twin = twin;
    let mut index = index(&world, seed);
    if twin == Twin::Presence {
        index = Arc::new(VersionBlind::new(index, world.clone()));
    }
    let mut schedule = Schedule {
        world,
        rng: Rng::with_seed(seed),
        workers: vec![None, None, None],
        index,
        directs: Vec::new(),
    };
    for _ in 0..schedule.rng.u32(40..240) {
        schedule.step(true);
    }
    schedule.settle()
}

impl Schedule {
    /// Executes one random event.
    fn step(&mut self, with_faults: bool) {
        match self.rng.u32(0..10) {
            0 | 1 if with_faults => self.change(),
            2 if with_faults => self.kill(),
            3 => self.claim(),
            _ => self.deliver(with_faults),
        }
        self.poll();
    }

    /// Runs a program's transaction, and perhaps its direct write afterwards.
    fn change(&mut self) {
        let id = self.rng.u32(0..IDS).to_string();
        let text = self.rng.u64(0..1_000);
        let what = self.rng.u32(0..10);
        let world = self.world.clone();
        let inner = &mut *world.inner();
        let request = |id: &str| SyncRequest {
            id: id.to_owned(),
            ..SyncRequest::default()
        };
        if what == 0 {
            // A user changes name: documents change, rows do not.
            inner.beside += 1;
            let ids: Vec<String> = inner.rows.keys().cloned().collect();
            for id in ids {
                let force = true;
                inner.enqueue(SyncRequest {
                    force,
                    ..request(&id)
                });
            }
            return;
        }
        let version = inner.draw();
        let write = if what < 4 && inner.rows.remove(&id).is_some() {
            let deleted = Some(version);
            inner.enqueue(SyncRequest {
                deleted,
                ..request(&id)
            });
            (Mark::deletion(version), None)
        } else {
            let row = Line { version, text };
            let document = inner.document(&row);
            inner.rows.insert(id.clone(), row);
            inner.enqueue(request(&id));
            (Mark::new(version), Some(document))
        };
        if self.rng.bool() {
            let (mark, document) = write;
            let write = Write {
                id,
                mark,
                token: 0,
                document,
            };
            let index = Arc::clone(&self.index);
            let writes = [write];
            self.directs
                .push(Box::pin(async move { drop(index.write(&writes).await) }));
        }
    }

    /// Kills a worker: its requests stay in flight, and its jobs are claimed again.
    fn kill(&mut self) {
        let worker = self.rng.usize(0..self.workers.len());
        if let Some(running) = self.workers[worker].take() {
            let mut inner = self.world.inner();
            release(&mut inner, &running.jobs);
        }
    }

    fn claim(&mut self) {
        let Some(worker) = self.workers.iter().position(Option::is_none) else {
            return;
        };
        let most = self.rng.usize(1..8);
        let mut inner = self.world.inner();
        self.rng.shuffle(&mut inner.jobs);
        let free = inner.jobs.iter_mut().filter(|job| !job.is_claimed);
        let mut requests = Vec::new();
        let mut jobs = Vec::new();
        for job in free.take(most) {
            job.is_claimed = true;
            requests.push(job.request.clone());
            jobs.push(job.number);
        }
        drop(inner);
        if !jobs.is_empty() {
            self.run(worker, requests, jobs);
        }
    }

    /// Starts a worker's pass over these jobs.
    fn run(&mut self, worker: usize, requests: Vec<SyncRequest>, jobs: Vec<u64>) {
        let (world, index) = (self.world.clone(), Arc::clone(&self.index));
        let pass = Box::pin(async move {
            let pass = Pass {
                source: &world,
                index: &*index,
                proof: Proof::Stored,
                bytes: 60,
            };
            // A sync does this before a pass.
            match index.create_if_missing(&[]).await {
                Ok(()) => pass.run(&requests).await,
                Err(IndexError(why)) => vec![SyncOutcome::Rescheduled(why); requests.len()],
            }
        });
        self.workers[worker] = Some(Running { pass, jobs });
    }

    /// Delivers a random request, which is answered or not.
    fn deliver(&mut self, with_faults: bool) {
        let mut inner = self.world.inner();
        if inner.in_transit.is_empty() {
            return;
        }
        let which = self.rng.usize(0..inner.in_transit.len());
        let request = inner.in_transit.swap_remove(which);
        let fault = if with_faults { self.rng.u32(0..12) } else { 99 };
        match request {
            // Postgres is down, or the answer is lost.
            Request::Versions(..) | Request::Rows(..) | Request::Read(..) if fault == 0 => {}
            Request::Versions(ids, answer) => drop(answer.send(inner.versions(&ids))),
            Request::Rows(ids, answer) => drop(answer.send(inner.made(&ids))),
            Request::Read(ids, answer) => {
                let seen = if fault == 1 {
                    inner.read_stale(&ids, self.rng.usize(0..5))
                } else {
                    inner.read(&ids)
                };
                let _ = answer.send(Ok(seen));
            }
            Request::Write(writes, answer) => self.carry_out(&mut inner, writes, answer, fault),
            #[cfg(feature = "elastic")]
            Request::Asked(asked) if with_faults => asked.meet(&mut inner, &mut self.rng),
            #[cfg(feature = "elastic")]
            Request::Asked(asked) => asked.answer(&inner),
        }
    }

    fn carry_out(
        &self,
        inner: &mut Inner,
        writes: Vec<Write>,
        answer: Option<tokio::sync::oneshot::Sender<Result<Vec<WriteOutcome>, IndexError>>>,
        fault: u32,
    ) {
        let answer = |answers| {
            if let Some(answer) = answer {
                let _ = answer.send(answers);
            }
        };
        match fault {
            // The whole request is refused: 429, 503, read-only.
            0 => answer(Err(IndexError("busy".into()))),
            // The answer is late; the request arrives later.
            1 | 2 => {
                inner.in_transit.push(Request::Write(writes, None));
                answer(Err(IndexError("late".into())));
            }
            // The answer is 200, and nothing is stored.
            3 => answer(Ok(vec![WriteOutcome::Taken; writes.len()])),
            // Only some of the writes are executed.
            4 => {
                let later = || WriteOutcome::Retry {
                    reason: "429".into(),
                };
                let mut takes = writes.iter().enumerate();
                let mut each = |(n, write)| {
                    if n % 2 == 0 {
                        inner.write(write)
                    } else {
                        later()
                    }
                };
                let answers = takes.by_ref().map(&mut each).collect();
                answer(Ok(answers));
            }
            _ => {
                let answers = writes.iter().map(|write| inner.write(write)).collect();
                // A proxy repeats the request, much later.
                if fault == 5 {
                    inner.in_transit.push(Request::Write(writes, None));
                }
                // The request was executed, and the answer is lost.
                if fault != 6 {
                    answer(Ok(answers));
                }
            }
        }
    }

    /// Polls every pass as far as it can continue.
    fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        self.directs
            .retain_mut(|direct| direct.as_mut().poll(&mut context).is_pending());
        for worker in &mut self.workers {
            let Some(running) = worker else { continue };
            let Poll::Ready(outcomes) = running.pass.as_mut().poll(&mut context) else {
                continue;
            };
            let mut inner = self.world.inner();
            for (job, outcome) in running.jobs.iter().zip(outcomes) {
                match outcome {
                    SyncOutcome::Done(_) => inner.jobs.retain(|one| one.number != *job),
                    _ => release(&mut inner, &[*job]),
                }
            }
            drop(inner);
            *worker = None;
        }
    }

    /// Ends the faults: no worker dies, and requests are executed and answered.
    fn settle(mut self) -> Result<(), String> {
        self.directs.clear();
        #[cfg(feature = "elastic")]
        if let Some(served) = &self.world.inner().served {
            served.settle();
        }
        for poll in 1..=4 {
            self.complete_poll()?;
            let untrue = self.world.inner().untrue();
            if poll == 2 && !untrue.is_empty() {
                return Err(format!("after two polls: {untrue:#?}"));
            }
        }
        // The requests that were still in flight arrive.
        let late = std::mem::take(&mut self.world.inner().in_transit);
        for request in late {
            let mut inner = self.world.inner();
            match request {
                Request::Write(writes, _) => {
                    writes.iter().for_each(|write| drop(inner.write(write)));
                }
                #[cfg(feature = "elastic")]
                Request::Asked(asked) => asked.answer(&inner),
                _ => {}
            }
        }
        let inner = self.world.inner();
        let untrue = inner.untrue();
        let left = inner.jobs.iter().filter(|job| {
            let row = inner.rows.get(&job.request.id);
            !row.is_some_and(|row| super::world::is_unacceptable(row.text))
        });
        match (untrue.is_empty(), left.count()) {
            (true, 0) => Ok(()),
            (_, left) => Err(format!("{left} jobs are left; {untrue:#?}")),
        }
    }

    /// Checks every job once. Earlier writes stay in flight.
    fn complete_poll(&mut self) -> Result<(), String> {
        self.workers.iter_mut().for_each(|worker| {
            if let Some(running) = worker.take() {
                release(&mut self.world.inner(), &running.jobs);
            }
        });
        let (all, jobs): (Vec<SyncRequest>, Vec<u64>) = {
            let inner = self.world.inner();
            let jobs = inner.jobs.iter();
            jobs.map(|job| (job.request.clone(), job.number)).unzip()
        };
        self.run(0, all, jobs);
        for _ in 0..10_000 {
            self.poll();
            if self.workers[0].is_none() {
                return Ok(());
            }
            self.answer_newest();
        }
        Err("a poll does not end".into())
    }

    fn answer_newest(&mut self) {
        let newest = {
            let mut inner = self.world.inner();
            let at = inner.in_transit.iter().rposition(Request::is_waited_for);
            at.map(|at| inner.in_transit.swap_remove(at))
        };
        let Some(request) = newest else { return };
        let mut inner = self.world.inner();
        match request {
            Request::Versions(ids, answer) => drop(answer.send(inner.versions(&ids))),
            Request::Rows(ids, answer) => drop(answer.send(inner.made(&ids))),
            Request::Read(ids, answer) => drop(answer.send(Ok(inner.read(&ids)))),
            Request::Write(writes, answer) => self.carry_out(&mut inner, writes, answer, 99),
            #[cfg(feature = "elastic")]
            Request::Asked(asked) => asked.answer(&inner),
        }
    }
}

fn release(inner: &mut Inner, jobs: &[u64]) {
    let of = |job: &&mut super::world::Job| jobs.contains(&job.number);
    inner
        .jobs
        .iter_mut()
        .filter(of)
        .for_each(|job| job.is_claimed = false);
}
