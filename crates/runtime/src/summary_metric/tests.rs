use super::*;

fn summary() -> SummaryMetric<1> {
    SummaryMetric::new("s", "help", ["type"]).unwrap()
}

fn quantiles(summary: &SummaryMetric<1>) -> Vec<f64> {
    let family = summary.collect().remove(0);
    family.get_metric()[0].get_summary().get_quantile().iter().map(proto::Quantile::value).collect()
}

#[test]
fn quantiles_are_accurate_to_one_bucket() {
    let summary = summary();
    for milliseconds in 1..=100 {
        summary.observe(["admit"], Duration::from_millis(milliseconds), Duration::ZERO);
    }
    let got = quantiles(&summary);
    for (got, wanted) in got.iter().zip([0.050, 0.090, 0.099]) {
        assert!((got - wanted).abs() / wanted < 0.03, "{got} is not {wanted}");
    }
}

#[test]
fn observations_older_than_five_hours_leave_the_quantiles_but_not_the_sum() {
    let summary = summary();
    summary.observe(["admit"], Duration::from_secs(10), Duration::ZERO);
    let later = WINDOW * 5;
    summary.observe(["admit"], Duration::from_millis(1), later);
    assert!(quantiles(&summary).iter().all(|value| *value < 0.002));
    let family = summary.collect().remove(0);
    let shown = family.get_metric()[0].get_summary();
    assert_eq!(shown.sample_count(), 2);
    assert!(shown.sample_sum() > 10.0);
}

#[test]
fn observations_four_hours_old_still_count_for_quantiles() {
    let summary = summary();
    summary.observe(["admit"], Duration::from_secs(10), Duration::ZERO);
    summary.observe(["admit"], Duration::from_millis(1), WINDOW * 4);
    assert!(quantiles(&summary)[2] > 9.0);
}

#[test]
fn a_summary_without_observations_is_not_exposed() {
    assert!(summary().collect().is_empty());
}
