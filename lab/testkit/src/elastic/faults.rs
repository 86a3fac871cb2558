//! The faults of the fake, and their probabilities.

/// The probability of each fault, from 0 (never) to 1 (always); 0 by default.
///
/// | fault | answer to the client | effect |
/// |---|---|---|
/// | `lost_before` | no answer | nothing |
/// | `lost_after` | no answer | everything |
/// | `late` | no answer | nothing until further requests or [settle](super::FakeElastic::settle) |
/// | `too_many` | 429 | nothing |
/// | `unavailable_before`, `unavailable_after` | 503 | nothing; everything |
/// | `partial` | for each write in a request: 429 or 503 | nothing |
/// | `lies` | success | nothing |
/// | `stale` | for each document read: an earlier state | |
/// | `dirty` | for some requests, none to writes | kept, or rolled back under a new term |
/// | `read_only` | for some requests, the index refuses writes | |
///
/// While an index is `dirty`, reads and scripts see its writes.
///
/// All faults are drawn from the seed, request by request: a client that sends one request after
/// the other gets the same faults each time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The request is lost.
    pub lost_before: f64,
    /// The answer is lost.
    pub lost_after: f64,
    /// The request is executed later.
    pub late: f64,
    /// The server is overloaded.
    pub too_many: f64,
    /// The server cannot execute the request.
    pub unavailable_before: f64,
    /// The server has executed the request and reports that it could not.
    pub unavailable_after: f64,
    /// Single writes are refused.
    pub partial: f64,
    /// The server reports success and has done nothing.
    pub lies: f64,
    /// Reads by ID return an earlier state.
    pub stale: f64,
    /// The primary is isolated.
    pub dirty: f64,
    /// The disk is full.
    pub read_only: f64,
}

impl Faults {
    /// Sets all faults but `lies` to this probability. No protocol can tolerate a server that
    /// acknowledges writes which it did not store.
    pub fn without_lies(often: f64) -> Self {
        Self {
            lost_before: often,
            lost_after: often,
            late: often,
            too_many: often,
            unavailable_before: often,
            unavailable_after: often,
            partial: often,
            lies: 0.0,
            stale: often,
            dirty: often / 4.0,
            read_only: often / 4.0,
        }
    }
}

/// A fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is lost.
    LostBefore,
    /// The request is executed and its answer is lost.
    LostAfter,
    /// The answer never comes, and the request is executed later.
    Late,
    /// 429.
    TooMany,
    /// 503, and nothing is executed.
    UnavailableBefore,
    /// 503, although the request is executed.
    UnavailableAfter,
    /// Success, although nothing is executed. Reads are answered correctly.
    Lie,
}

impl Faults {
    /// Draws the fault of the next request.
    pub(super) fn draw(&self, rng: &mut fastrand::Rng) -> Option<Fault> {
        let mut at = rng.f64();
        for (fault, often) in [
            (Fault::LostBefore, self.lost_before),
            (Fault::LostAfter, self.lost_after),
            (Fault::Late, self.late),
            (Fault::TooMany, self.too_many),
            (Fault::UnavailableBefore, self.unavailable_before),
            (Fault::UnavailableAfter, self.unavailable_after),
            (Fault::Lie, self.lies),
        ] {
            if at < often {
                return Some(fault);
            }
            at -= often;
        }
        None
    }
}
