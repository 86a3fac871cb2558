//! Requests at a steady rate, whether answers come or not, and what they came to.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use crate::figures::Figures;

/// How often each path is asked.
const PERIOD: Duration = Duration::from_millis(25);
/// A browser gives up after this.
const LIMIT: Duration = Duration::from_secs(20);

/// What one request came to, in a part of the play.
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
    /// Asks the service at this address for these paths.
    pub fn on(address: String, paths: &'static [&'static str]) -> Result<Self> {
        Ok(Self {
            // A connection that rests may be closed just as a request goes out on it: that says
            // nothing of the service.
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

    /// From now on this service is asked.
    pub fn turn_to(&self, address: String) {
        *locked(&self.address) = address;
    }

    /// Loads all paths until this is over, and waits for the last answer.
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
            // The process of this address has gone and another has taken its place: what
            // stands before a service goes on to that one.
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

    /// What the requests of a phase for a path came to.
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

    /// How long a request that was due waited for a processor to be sent by, at the most.
    pub fn delay(&self) -> Duration {
        *locked(&self.delay)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
