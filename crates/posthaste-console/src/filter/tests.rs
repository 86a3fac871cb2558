use super::*;

fn read(typed: &str) -> Result<Filter, String> {
    Filter::parse(typed, "2026-11-24T12:04:31Z".parse().unwrap())
}

#[test]
fn filters_round_trip() {
    let typed = r#"queue:mail state:retrying name:"a b" tag:"" error:"re\"f:u\\sed" text:7
                   key:"a b*" priority:-7 worker:3 since:11:30 until:2026-11-24 id:4"#;
    let filter = read(typed).unwrap();
    assert_eq!(filter.queue.as_deref(), Some("mail"));
    assert_eq!(filter.state, Some(State::Retrying));
    assert_eq!(filter.error.as_deref(), Some("re\"f:u\\sed"));
    assert_eq!(filter.tag.as_deref(), Some(""));
    assert_eq!(filter.key.as_deref(), Some("a b*"));
    assert_eq!((filter.priority, filter.worker), (Some(-7), Some(3)));
    assert_eq!(read(&filter.to_string()).unwrap(), filter);
}

#[test]
fn causes_match_whole_errors_with_number_signs_as_wildcards() {
    let filter = read(r#"cause:"row # of 50% \"x\" is missing""#).unwrap();
    let pattern = filter.error_pattern();
    assert_eq!(pattern.as_deref(), Some("row % of 50\\% \"x\" is missing"));
    assert_eq!(read(&filter.to_string()).unwrap(), filter);
}

#[test]
fn stored_filters_keep_their_meaning_over_time() {
    let typed = format!("since:2h error:{}", "\\".repeat(900));
    let filter = read(&typed).unwrap().with_absolute_times();
    let later = "2027-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(
        Filter::parse_stored(&filter.to_string(), later).unwrap(),
        filter
    );
    assert_eq!(filter.since.unwrap().typed, "2026-11-24T10:04:31Z");
}

#[test]
fn bare_words_are_names_and_bare_numbers_are_job_ids() {
    assert_eq!(
        read("mail.send").unwrap().name.as_deref(),
        Some("mail.send")
    );
    assert_eq!(read(" 4711 ").unwrap().id, Some(4711));
    assert_eq!(read("").unwrap(), Filter::default());
}

#[test]
fn filter_errors_name_the_word() {
    let refusal = |typed: &str| read(typed).unwrap_err();
    assert_eq!(refusal("state:lost"), "lost is not a state");
    assert!(refusal("before:11:30").starts_with("before is not a condition"));
    assert!(refusal("until:noon").starts_with("until:noon is not a time"));
    assert!(refusal("since:noon").starts_with("since:noon is not a time"));
    assert_eq!(refusal("name:\"a"), "a quote is not closed");
    for typed in ["id:x", "worker:a", "priority:2147483648", "priority:1*"] {
        assert_eq!(refusal(typed), format!("{typed} is not a number"));
    }
    assert!(refusal("name:a\0").contains("NUL"));
    assert!(refusal(&"a".repeat(1_001)).contains("at most"));
}

#[test]
fn patterns_match_the_typed_text_and_options_survive_a_shell() {
    let filter = read(r#"error:"50%_\\" queue:"it's""#).unwrap();
    assert_eq!(filter.error_pattern().as_deref(), Some("%50\\%\\_\\\\%"));
    assert!(
        filter.options().contains(r"--queue 'it'\''s'"),
        "{}",
        filter.options()
    );
}

#[test]
fn trailing_stars_match_any_text() {
    let filter = read("name:mail_* tag:a queue:50%* key:c* priority:5 until:2026-11-24").unwrap();
    let patterns = filter.name_patterns().map(Option::unwrap);
    assert_eq!(patterns, ["50\\%%", "mail\\_%", "a", "c%"]);
    assert_eq!(
        filter.conditions(false),
        "queue LIKE '50\\%%' AND name LIKE 'mail\\_%' AND tag = 'a' AND ordering_key LIKE 'c%' \
         AND priority = '5' AND enqueued_at < '2026-11-24T00:00:00Z'"
    );
    assert_eq!(read(&filter.to_string()).unwrap(), filter);
    let exact = read(r#"name:"mail_*" error:re*"#).unwrap();
    assert_eq!(exact.name.as_deref(), Some("mail_*"));
    assert_eq!(exact.error.as_deref(), Some("re*"));
    assert_eq!(exact.are_prefixes, [false; 4]);
    assert_eq!(read(&exact.to_string()).unwrap(), exact);
    assert!(read("12*").unwrap().are_prefixes[1] && read("12").unwrap().id == Some(12));
    assert!(
        !filter.is_expressible_as_options() && read("name:a").unwrap().is_expressible_as_options()
    );
    assert!(!read("priority:1").unwrap().is_expressible_as_options());
}
