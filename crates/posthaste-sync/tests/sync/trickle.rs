//! Jobs that arrive one by one, without a pause.

use std::time::Duration;

use super::setup;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_jobs_do_not_starve_waiting_ones() {
    let setup = setup().await;
    let (worker, sync) = setup.start(setup.sync()).await;
    // No pause ends the batch, and too few jobs arrive to fill it.
    let mut beat = tokio::time::interval(Duration::from_millis(50));
    let mut jobs = 0;
    while sync.status().total("written") == 0 {
        assert!(jobs < 1_000, "nothing was polled");
        beat.tick().await;
        let note = format!("INSERT INTO note VALUES ({jobs}, 'n')");
        setup.run(&note).await;
        jobs += 1;
    }
    worker.stop().await.unwrap();
}
