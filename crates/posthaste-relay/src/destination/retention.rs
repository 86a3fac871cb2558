//! The time for which a receiver must remember accepted messages. Pure.

use std::time::Duration;

#[cfg(any(feature = "asynq", feature = "bullmq", feature = "nats"))]
use crate::destination::contract::UnsafeSetting;

/// Returns the unsafe setting of a receiver that forgets sooner.
#[cfg(any(feature = "asynq", feature = "bullmq", feature = "nats"))]
pub(crate) fn check_retention(
    setting: &str,
    window: Duration,
    longest_outage: Duration,
) -> Option<UnsafeSetting> {
    (window < longest_outage).then(|| UnsafeSetting {
        setting: setting.into(),
        lost: format!(
            "is {} s, so a message that is sent again after a longer outage is run twice; \
             set it to {} s or more, the longest outage of the route",
            window.as_secs(),
            ceil_seconds(longest_outage)
        ),
    })
}

/// Returns whole seconds, rounded up.
pub(crate) fn ceil_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(all(test, any(feature = "asynq", feature = "bullmq", feature = "nats")))]
mod tests {
    use super::{ceil_seconds, check_retention};
    use crate::destination::contract::DEFAULT_LONGEST_OUTAGE;
    use std::time::Duration;

    #[test]
    fn duplicate_windows_shorter_than_the_longest_outage_are_reported() {
        let minute = Duration::from_secs(60);
        for outage in [Duration::ZERO, minute] {
            assert_eq!(check_retention("retention", minute, outage), None);
        }
        let unsafe_setting = check_retention("retention", minute, DEFAULT_LONGEST_OUTAGE)
            .expect("an unsafe setting");
        assert_eq!(unsafe_setting.setting, "retention");
        assert!(
            unsafe_setting.lost.starts_with("is 60 s, "),
            "{}",
            unsafe_setting.lost
        );
    }

    #[test]
    fn partial_seconds_round_up() {
        let all = [0, 1, 1000, 1001].map(|millis| ceil_seconds(Duration::from_millis(millis)));
        assert_eq!(all, [0, 1, 1, 2]);
    }
}
