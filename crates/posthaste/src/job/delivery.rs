//! The delivery ids that receivers see.

use uuid::Uuid;

use super::JobId;

/// The delivery id of job 0 for each range of job ids; of two entries that contain an id, the newer
/// one applies. A job keeps its delivery id, also after the database was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Epochs(Vec<(i64, Uuid)>);

impl Epochs {
    /// Both lists are in the order in which the entries began.
    pub(crate) fn new(first: Vec<i64>, zero: Vec<Uuid>) -> Self {
        Self(first.into_iter().zip(zero).collect())
    }

    pub(crate) fn delivery_id(&self, id: JobId) -> Uuid {
        let newest = self.0.iter().rev().find(|(first, _)| *first <= id.0);
        let zero = newest.map_or(Uuid::nil(), |(_, zero)| *zero);
        Uuid::from_u128(zero.as_u128() | u128::from(id.0.unsigned_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_job_number_gets_another_delivery_id() {
        let [a, b, c] = [1u128 << 100, 2 << 100, 3 << 100].map(Uuid::from_u128);
        let known = Epochs::new(vec![0, 100, 90], vec![a, b, c]);
        let of = |id| known.delivery_id(JobId(id)).as_u128();
        assert_eq!(of(89), a.as_u128() | 89);
        assert_eq!(of(90), c.as_u128() | 90);
        assert_eq!(of(100), c.as_u128() | 100, "the newest that holds it");
        let before = Epochs::new(vec![0, 100], vec![a, b]);
        assert_eq!(before.delivery_id(JobId(99)).as_u128(), a.as_u128() | 99);
        assert_eq!(before.delivery_id(JobId(100)).as_u128(), b.as_u128() | 100);
    }
}
