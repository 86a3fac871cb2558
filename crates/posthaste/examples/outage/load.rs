//! Requests at a steady rate, whether answers come or not, and what they came to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use crate::verdict::{Figures, Way};

/// How often an annotation is saved on each way.
const PERIOD: Duration = Duration::from_millis(25);
/// A browser gives up after this.
const LIMIT: Duration = Duration::from_secs(20);

/// A part of the play.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    Warm,
    Before,
    Outage,
    After,
}

/// What one request came to.
struct Request {
    phase: Phase,
    way: Way,
    took: Duration,
    is_well: bool,
}

pub struct Load {
    client: reqwest::Client,
    address: Mutex<String>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Load {
    pub fn on(address: String) -> Result<Self> {
        Ok(Self {
            client: reqwest::Client::builder().timeout(LIMIT).build()?,
            address: Mutex::new(address),
            requests: Arc::default(),
        })
    }

    /// From now on this service is asked.
    pub fn turn_to(&self, address: String) {
        *locked(&self.address) = address;
    }

    /// Loads both ways for so long, and waits for the last answer.
    pub async fn put(&self, phase: Phase, lasting: Duration) {
        let mut under_way = JoinSet::new();
        let begun = Instant::now();
        let mut beat = tokio::time::interval(PERIOD);
        while begun.elapsed() < lasting {
            beat.tick().await;
            for way in [Way::Old, Way::Posthaste] {
                let url = format!("http://{}/{}", locked(&self.address), way.name());
                let request = self.client.post(url).body("a thought");
                let requests = Arc::clone(&self.requests);
                under_way.spawn(async move {
                    let begun = Instant::now();
                    let answer = request.send().await;
                    locked(&requests).push(Request {
                        phase,
                        way,
                        took: begun.elapsed(),
                        is_well: answer.is_ok_and(|answer| answer.status().is_success()),
                    });
                });
            }
        }
        under_way.join_all().await;
    }

    /// What the requests of a phase came to, on each way.
    pub fn figures(&self, phase: Phase) -> [Figures; 2] {
        let requests = locked(&self.requests);
        [Way::Old, Way::Posthaste].map(|way| {
            let of_these = requests
                .iter()
                .filter(|one| one.phase == phase && one.way == way);
            let mut took: Vec<Duration> = of_these.clone().map(|one| one.took).collect();
            took.sort();
            let place = (took.len() * 99).div_ceil(100).saturating_sub(1);
            Figures {
                requests: took.len(),
                failed: of_these.filter(|one| !one.is_well).count(),
                p99: took.get(place).copied().unwrap_or_default(),
            }
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
