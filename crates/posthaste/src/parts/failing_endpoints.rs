//! Endpoints of this process that do not accept jobs.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

/// The most characters of all reasons that the store keeps.
const MAX_SUMMARY_CHARS: usize = 1_000;

/// Why endpoints do not accept jobs, by endpoint; the heartbeat reports this.
#[derive(Debug, Default)]
pub(crate) struct FailingEndpoints(Mutex<BTreeMap<usize, String>>);

impl FailingEndpoints {
    /// Records why the endpoint with this key does not accept jobs; `None` if it does.
    #[cfg(any(feature = "http", test))]
    pub(crate) fn set_reason(&self, key: usize, reason: Option<String>) {
        let mut reasons = self.reasons();
        match reason {
            Some(reason) => reasons.insert(key, reason),
            None => reasons.remove(&key),
        };
    }

    /// Returns all reasons as one text, `None` if every endpoint accepts jobs.
    pub(crate) fn summary(&self) -> Option<String> {
        let reasons = self.reasons();
        let all: Vec<&str> = reasons.values().map(String::as_str).collect();
        let text = all.join("; ").replace('\0', "");
        (!all.is_empty()).then(|| text.chars().take(MAX_SUMMARY_CHARS).collect())
    }

    fn reasons(&self) -> MutexGuard<'_, BTreeMap<usize, String>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::{FailingEndpoints, MAX_SUMMARY_CHARS};

    #[test]
    fn summary_lists_failing_endpoints_until_they_recover() {
        let failing = FailingEndpoints::default();
        assert_eq!(failing.summary(), None);
        failing.set_reason(1, Some("a: 401".into()));
        failing.set_reason(2, Some("b: 404\0".into()));
        failing.set_reason(1, Some("a: 403".into()));
        assert_eq!(failing.summary().unwrap(), "a: 403; b: 404");
        failing.set_reason(1, None);
        assert_eq!(failing.summary().unwrap(), "b: 404");
        failing.set_reason(2, Some("ü".repeat(2 * MAX_SUMMARY_CHARS)));
        assert_eq!(
            failing.summary().unwrap().chars().count(),
            MAX_SUMMARY_CHARS
        );
        failing.set_reason(2, None);
        assert_eq!(failing.summary(), None);
    }
}
