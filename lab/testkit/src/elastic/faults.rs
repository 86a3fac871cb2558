//! What can go wrong, and how often.

/// How often each thing goes wrong, from 0 (never) to 1 (always); nothing goes wrong by default.
///
/// | fault | what the client sees | what has happened |
/// |---|---|---|
/// | `lost_before` | no answer | nothing |
/// | `lost_after` | no answer | all of it |
/// | `late` | no answer | nothing yet: it is done after some further requests, or when all [settles](super::FakeElastic::settle) |
/// | `too_many` | 429 | nothing |
/// | `unavailable_before`, `unavailable_after` | 503 | nothing; all of it |
/// | `partial` | of each write in a request: it was refused by 429 or 503 | nothing |
/// | `lies` | success | nothing |
/// | `stale` | of each document read: an earlier state | |
/// | `dirty` | for some requests no write to the index is answered | reads and scripts see what is written, which is then kept or rolled back under a new term |
/// | `read_only` | for some requests the index takes no writes | |
///
/// All this is drawn from the seed, request by request: who asks one thing after the other meets
/// the same again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The request is lost.
    pub lost_before: f64,
    /// The answer is lost.
    pub lost_after: f64,
    /// The request is done later.
    pub late: f64,
    /// The server has too much to do.
    pub too_many: f64,
    /// The server cannot do it.
    pub unavailable_before: f64,
    /// The server has done it and says that it could not.
    pub unavailable_after: f64,
    /// Single writes are refused.
    pub partial: f64,
    /// The server says that it has done it and has not.
    pub lies: f64,
    /// Reads by id show what was.
    pub stale: f64,
    /// The primary is cut off.
    pub dirty: f64,
    /// The disk is full.
    pub read_only: f64,
}

impl Faults {
    /// Each of them this often, but no lies: no protocol can hold against an acknowledgement of
    /// what was not stored.
    pub fn honest(often: f64) -> Self {
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

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is lost.
    LostBefore,
    /// It is done, and its answer is lost.
    LostAfter,
    /// Its answer never comes, and it is done later.
    Late,
    /// 429.
    TooMany,
    /// 503, and nothing is done.
    UnavailableBefore,
    /// 503, though it is done.
    UnavailableAfter,
    /// Success, though nothing is done. Reads are answered truthfully.
    Lie,
}

impl Faults {
    /// What happens to the next request.
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
