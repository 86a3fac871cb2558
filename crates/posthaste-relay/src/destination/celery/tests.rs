use super::{MAX_SHOWN_BYTES, call_arguments, truncate_shown};
use crate::message::mapping::Mapping;
use crate::message::template::Template;
use crate::message::tests::{ID, job};

#[test]
fn payloads_become_call_arguments() {
    for (payload, args, kwargs) in [
        (r#"{"args": [1, "two"]}"#, r#"[1, "two"]"#, "{}"),
        (
            r#"{"args": [1], "to": "ada"}"#,
            "[]",
            r#"{"args": [1], "to": "ada"}"#,
        ),
        ("{}", "[]", "{}"),
        ("{} x", r#"["{} x"]"#, "{}"),
        ("[1, 2]", "[[1, 2]]", "{}"),
        ("{plain}", r#"["{plain}"]"#, "{}"),
    ] {
        let mapping = Mapping::default().payload(Template::text(payload));
        let message = mapping.message(job("a", "{}"), ID).expect("a message");
        assert_eq!(call_arguments(&message), (args.into(), kwargs.into()));
    }
}

#[test]
fn argument_summaries_are_cut_at_character_boundaries() {
    let long = "é".repeat(MAX_SHOWN_BYTES).into();
    assert_eq!(
        truncate_shown(&long),
        format!("{}...", "é".repeat(MAX_SHOWN_BYTES / 2))
    );
    let odd = format!("x{}", "é".repeat(MAX_SHOWN_BYTES)).into();
    assert!(truncate_shown(&odd).ends_with("é..."));
    assert_eq!(truncate_shown(&"[1]".into()), "[1]");
}

#[cfg(feature = "celery-redis")]
#[test]
fn reserved_celery_headers_are_refused_and_others_allowed() {
    use super::RESERVED_HEADERS;
    use crate::destination::celery::Celery;
    use crate::destination::contract::Destination;

    let celery = Celery::redis("redis://127.0.0.1").expect("a destination");
    for name in RESERVED_HEADERS {
        assert!(celery.header_objection(name).is_some(), "{name}");
    }
    for name in ["shadow", "argsrepr", "traceparent", "tenant"] {
        assert_eq!(celery.header_objection(name), None);
    }
    let error = celery.header_objection("timelimit").expect("refused");
    assert!(error.contains("task_time_limit"), "{error}");
    for queue in ["", "a\u{6}\u{16}9"] {
        let mapping = Mapping::default().queue(Template::text(queue));
        let message = mapping.message(job("a", "{}"), ID).expect("a message");
        assert!(celery.rejection_reason(&message).is_some(), "{queue:?}");
    }
}
