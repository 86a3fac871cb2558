//! Concurrent requests on one connection, sent in order and answered in any order.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// Starts all futures in this order, without waiting for one before the next, and returns their
/// outputs. A client that queues a request when its future is first polled therefore preserves the
/// order of a batch.
pub(crate) async fn join_in_order<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut outcomes = Vec::new();
    let mut waiting = FuturesUnordered::new();
    for (index, future) in futures.into_iter().enumerate() {
        let mut future = Box::pin(future);
        match poll_once(future.as_mut()).await {
            Poll::Ready(outcome) => outcomes.push(Some(outcome)),
            Poll::Pending => {
                outcomes.push(None);
                waiting.push(async move { (index, future.await) });
            }
        }
    }
    while let Some((index, outcome)) = waiting.next().await {
        outcomes[index] = Some(outcome);
    }
    outcomes.into_iter().flatten().collect()
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::Semaphore;

    use super::join_in_order;

    #[tokio::test]
    async fn all_requests_start_in_order_before_any_is_awaited() {
        let begun = Mutex::new(Vec::new());
        let last = Semaphore::new(0);
        let ask = async |n: usize| {
            begun.lock().expect("a list").push(n);
            if n == 99 {
                last.add_permits(100);
            }
            if n.is_multiple_of(3) {
                let _ = last.acquire().await;
            }
            n
        };
        let answers = join_in_order((0..100).map(ask).collect()).await;
        let expected: Vec<usize> = (0..100).collect();
        assert_eq!(answers, expected);
        assert_eq!(*begun.lock().expect("a list"), expected);
    }
}
