//! Request scripts, answered as a real kube-apiserver answers them.

use conformance::suite;

#[tokio::test(flavor = "multi_thread")]
async fn every_step_is_answered_as_kubernetes_answers_it() {
    let score = suite::run().await.unwrap();
    print!("{}", score.report);
    assert!(score.total >= 300, "only {} steps", score.total);
    assert_eq!(score.passed, score.total, "steps were answered differently; see above");
}
