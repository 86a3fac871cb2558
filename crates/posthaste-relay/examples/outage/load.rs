//! Requests at a steady rate, independent of answers, and their results.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use crate::figures::Figures;

/// Time between two requests of each path.
const PERIOD: Duration = Duration::from_millis(25);
/// The timeout of a browser.
const LIMIT: Duration = Duration::from_secs(20);

/// The result of one request in a part of the run.
struct Request<P> {
    phase: P,
    path: &'static str,
    took: Duration,
    is_well: bool,
    is_late: bool,
}

pub struct Load<P> {
    client: reqwest::Client,
    paths: &'static [&'static str],
    address: Arc<Mutex<String>>,
    requests: Arc<Mutex<Vec<Request<P>>>>,
    delay: Mutex<Duration>,
}

impl<P: Copy + PartialEq + Send + 'static> Load<P> {
    /// Sends requests for these paths to the service at this address.
    pub fn on(address: String, paths: &'static [&'static str]) -> Result<Self> {
        Ok(Self {
            // An idle connection may be closed just as a request is sent on it, which is not a
            // failure of the service.
            client: reqwest::Client::builder()
                .timeout(LIMIT)
                .pool_max_idle_per_host(0)
                .build()?,
            paths,
            address: Arc::new(Mutex::new(address)),
            requests: Arc::default(),
            delay: Mutex::default(),
        })
    }

    /// Sends requests to this service from now on.
    pub fn turn_to(&self, address: String) {
        *locked(&self.address) = address;
    }

    /// Requests all paths until this future completes, and waits for the last answer.
    pub async fn put<T>(&self, phase: P, until: impl Future<Output = T>) -> T {
        let mut under_way = JoinSet::new();
        let mut beat = tokio::time::interval(PERIOD);
        let mut until = pin!(until);
        let outcome = loop {
            tokio::select! {
                outcome = &mut until => break outcome,
                due = beat.tick() => {
                    let mut delay = locked(&self.delay);
                    *delay = due.elapsed().max(*delay);
                    drop(delay);
                    for path in self.paths {
                        under_way.spawn(self.ask(phase, path));
                    }
                }
            }
        };
        under_way.join_all().await;
        outcome
    }

    fn ask(&self, phase: P, path: &'static str) -> impl Future<Output = ()> + Send + 'static {
        let (client, address) = (self.client.clone(), Arc::clone(&self.address));
        let requests = Arc::clone(&self.requests);
        let send = move || {
            let url = format!("http://{}/{path}", locked(&address));
            client.post(url).body("a thought").send()
        };
        async move {
            let begun = Instant::now();
            let mut answer = send().await;
            // The process at this address ended and another took its place: a load balancer would
            // use that one.
            if answer.as_ref().is_err_and(reqwest::Error::is_connect) {
                answer = send().await;
            }
            let took = begun.elapsed();
            let problem = match &answer {
                Ok(answer) if answer.status().is_success() => None,
                Ok(answer) => Some(answer.status().to_string()),
                Err(error) => Some(format!("{error:?}")),
            };
            if let Some(problem) = &problem {
                eprintln!("a request for {path} failed after {took:.1?}: {problem}");
            }
            let is_late = answer.as_ref().is_err_and(reqwest::Error::is_timeout);
            locked(&requests).push(Request {
                phase,
                path,
                took,
                is_late,
                is_well: problem.is_none(),
            });
        }
    }

    /// Returns the results of a phase's requests for a path.
    pub fn figures(&self, phase: P, path: &str) -> Figures {
        let requests = locked(&self.requests);
        let of_these = requests
            .iter()
            .filter(|one| one.phase == phase && one.path == path);
        let took = of_these.clone().map(|one| one.took).collect();
        let failed = of_these.filter(|one| !one.is_well);
        let late = failed.clone().filter(|one| one.is_late).count();
        Figures::of(took, [failed.count(), late])
    }

    /// Returns the longest time for which a due request waited for a processor.
    pub fn delay(&self) -> Duration {
        *locked(&self.delay)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
