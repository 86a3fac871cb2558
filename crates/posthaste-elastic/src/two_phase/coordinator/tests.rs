use super::*;

#[test]
fn backoff_grows_to_a_second_with_jitter() {
    assert_eq!(retry_wait(0, 1.0), MIN_RETRY_WAIT);
    assert_eq!(retry_wait(0, 0.0), MIN_RETRY_WAIT / 2);
    assert_eq!(retry_wait(60, 1.0), MAX_RETRY_WAIT);
    assert!(retry_wait(3, 0.2) < retry_wait(3, 0.3));
}
