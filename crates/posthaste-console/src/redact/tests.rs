use super::*;

fn secrets() -> Redactor {
    Redactor::new(&Settings::default())
}

fn shown(json: &str) -> String {
    let pieces = secrets().format_on_one_line(json).into_iter();
    let marked = pieces.map(|piece| match piece.is_redacted {
        true => "***".to_owned(),
        false => piece.text,
    });
    marked.collect()
}

#[test]
fn values_of_secret_keys_are_redacted_at_any_depth_and_of_any_type() {
    let json = r#"{"a": [{"API-Key": "x"}, {"b": {"userPassword": {"c": ["x", "}"]}}}], "d": 1}"#;
    let left = r#"{"a": [{"API-Key": ***}, {"b": {"userPassword": ***}}], "d": 1}"#;
    assert_eq!(shown(json), left);
    assert_eq!(
        shown(r#"{"token": null, "b": 2}"#),
        r#"{"token": null, "b": 2}"#
    );
    assert_eq!(
        shown(r#"{"token": 7, "b": 2}"#),
        r#"{"token": ***, "b": 2}"#
    );
    let deep = format!("{}{}", "[".repeat(50_000), r#"{"secret": 7}"#);
    assert!(shown(&deep).ends_with(r#"{"secret": ***}"#));
}

#[test]
fn secret_keys_are_redacted_in_any_case_and_within_json_strings() {
    assert_eq!(
        shown(r#"{"\u0070ASS\"word": "x"}"#),
        r#"{"\u0070ASS\"word": "x"}"#
    );
    assert_eq!(
        shown(r#"{"\u0070ASSword": "x"}"#),
        r#"{"\u0070ASSword": ***}"#
    );
    let within = r#"{"body": "{\"user\": {\"password\": \"x\"}}", "n": "[1]"}"#;
    assert_eq!(shown(within), r#"{"body": ***, "n": "[1]"}"#);
}

#[test]
fn values_named_by_a_sibling_are_redacted() {
    for (json, left) in [
        (
            r#"{"a": {"name": "password", "value": "x"}, "value": 1}"#,
            r#"{"a": {"name": "password", "value": ***}, "value": 1}"#,
        ),
        (
            r#"[{"val": {"b": ["x"]}, "header": "X-Auth"}, {"name": "author", "value": "y"}]"#,
            r#"[{"val": ***, "header": "X-Auth"}, {"name": "author", "value": "y"}]"#,
        ),
    ] {
        assert_eq!(shown(json), left);
    }
}

#[test]
fn secrets_within_texts_are_hidden_at_any_depth_of_quotes() {
    let within = r#"{"a": "https://u:x1@h/?token=x2", "b": "Authorization: Bearer x3"}"#;
    assert_eq!(
        shown(within),
        r#"{"a": "https://u:***@h/?token=***", "b": "Authorization: ***"}"#
    );
    let mut json = r#"{"password": "x"}"#.to_owned();
    for _ in 0..3 {
        json = serde_json::Value::from(json).to_string();
        let object = format!("{{\"body\": {json}}}");
        assert_eq!(shown(&object), r#"{"body": ***}"#);
    }
}

#[test]
fn numbers_are_unchanged_and_lines_are_indented() {
    let json = r#"{"n": 129.00, "big": 123456789012345678901234567890, "e": {}, "l": [1, []]}"#;
    let (pieces, redacted) = secrets().format_indented(json);
    assert_eq!(redacted, 0);
    let lines = "{\n  \"n\": 129.00,\n  \"big\": 123456789012345678901234567890,\n  \
                 \"e\": {},\n  \"l\": [\n    1,\n    []\n  ]\n}";
    assert_eq!(pieces[0].text, lines);
}

#[test]
fn redaction_of_malformed_json_ends_and_shows_no_secret() {
    for json in [
        "",
        "{",
        "{\"secret\": \"x",
        "{\"secret\"",
        "\"\\",
        "}}]]",
        "{\"token\":{",
    ] {
        assert!(!shown(json).contains('x'), "{json}");
    }
}
