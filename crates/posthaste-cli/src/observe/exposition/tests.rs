use super::*;

#[test]
fn labels_escape_any_name() {
    let mut all = MetricList::default();
    let series = Series::from([(vec![("name", "a\"b\\c\nd".to_owned())], 1.5)]);
    all.metric("m", "gauge", "Help.", &series);
    assert_eq!(
        prometheus_text(&all.0),
        "# HELP m Help.\n# TYPE m gauge\nm{name=\"a\\\"b\\\\c\\nd\"} 1.5\n"
    );
}
