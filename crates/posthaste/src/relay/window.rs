//! For how long a receiver must know what it has taken. Pure.

use std::time::Duration;

use super::destination::Weakness;

/// How long an outage may last after which a message whose answer was lost is sent again, and must be known.
pub(super) const LONGEST_OUTAGE: Duration = Duration::from_secs(24 * 3600);

/// The weakness of a receiver that forgets sooner, by a setting of this name.
pub(super) fn too_short(setting: &str, window: Duration) -> Option<Weakness> {
    (window < LONGEST_OUTAGE).then(|| Weakness {
        setting: setting.into(),
        lost: format!(
            "is {} s, so a message that is sent again after a longer outage is run twice; set it to {} s or more",
            window.as_secs(),
            LONGEST_OUTAGE.as_secs()
        ),
    })
}

/// In whole seconds, of which a part counts as one.
pub(super) fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_OUTAGE, seconds, too_short};
    use std::time::Duration;

    #[test]
    fn a_window_shorter_than_the_longest_outage_is_named() {
        assert_eq!(too_short("retention", LONGEST_OUTAGE), None);
        let weakness = too_short("retention", Duration::from_secs(60)).expect("a weakness");
        assert_eq!(weakness.setting, "retention");
        assert!(weakness.lost.starts_with("is 60 s, "), "{}", weakness.lost);
    }

    #[test]
    fn a_part_of_a_second_is_no_less_than_one() {
        let all = [0, 1, 1000, 1001].map(|millis| seconds(Duration::from_millis(millis)));
        assert_eq!(all, [0, 1, 1, 2]);
    }
}
