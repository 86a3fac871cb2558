//! Documents are opened, even if the answer is lost.

use posthaste_elastic::two_phase::Failure;
use posthaste_testkit::elastic::Fault;

use super::document;
use super::fake::{Marks, fake};

#[tokio::test]
async fn opening_a_document_can_be_repeated_after_a_lost_answer() {
    let (fake, coordinator) = fake(1, Marks::Compared).await;
    for fault in [Fault::LostAfter, Fault::LostBefore] {
        fake.next([fault]);
        let failure = coordinator.open("a", 7).await.unwrap_err();
        assert!(
            matches!(&failure, Failure::Unopened { document, .. } if document == "a"),
            "{failure:?}"
        );
        assert!(failure.may_pass() && !failure.may_have_moved());
        let text = failure.to_string();
        assert!(
            text.contains("open it again") && !text.contains("transaction"),
            "{text}"
        );
        coordinator.open("a", 7).await.unwrap();
        assert_eq!(document(&coordinator, "a").await.balance, 7);
        fake.remove_without_trace("documents", "a");
    }
}
