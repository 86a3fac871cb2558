//! Sections of a file as captures.

use std::time::Duration;

use posthaste_relay::Route;
use serde_json::json;

use crate::capture::Capture;
use crate::source::Source;

fn read(name: &str, settings: serde_json::Value) -> Result<Capture, String> {
    let settings = serde_json::from_value(settings).unwrap();
    Capture::read(name, &settings, None, None).map_err(|error| error.to_string())
}

#[test]
fn minimal_settings_suffice() {
    let capture = read("orders", json!({ "outbox": "outbox" })).unwrap();
    assert_eq!(
        (&*capture.queue, &*capture.slot),
        ("orders", "posthaste_orders")
    );
    let table = &capture.source.tables()[0];
    assert_eq!(table.to_string(), "public.outbox");
    let messages = json!({ "queue": "q", "messages": "order.*", "slot": "s" });
    let messages = read("a", messages).unwrap();
    assert_eq!(messages.source, Source::Messages("order.*".into()));
    let tables = json!({
        "tables": ["a", "s.b"],
        "table": { "s.b": { "columns": ["id"], "where": "id > 0", "key": ["id"],
                            "operations": ["insert"] } },
    });
    let Source::Tables(tables) = read("a", tables).unwrap().source else {
        panic!("tables");
    };
    assert_eq!(tables[1].filter.as_deref(), Some("id > 0"));
    assert_eq!(tables[1].operations, ["insert"]);
}

#[test]
fn unset_options_default_to_the_server() {
    let read = |settings: serde_json::Value| read("a", settings).map(|one| one.options);
    let options = read(json!({ "messages": "*" })).unwrap();
    assert_eq!(options.failover, None);
    assert!(!options.local_only && !options.outbox_delete);
    let all = json!({
        "outbox": "outbox", "failover": false, "origin": "none", "outbox_delete": true,
    });
    let options = read(all).unwrap();
    assert_eq!(options.failover, Some(false));
    assert!(options.local_only && options.outbox_delete);
    assert!(
        !read(json!({ "messages": "*", "origin": "any" }))
            .unwrap()
            .local_only
    );
    for refused in [
        json!({ "messages": "*", "failover": "on" }),
        json!({ "messages": "*", "origin": "other" }),
        json!({ "messages": "*", "outbox_delete": true }),
        json!({ "outbox": "outbox", "outbox_delete": 1 }),
    ] {
        assert!(read(refused.clone()).is_err(), "{refused}");
    }
}

#[test]
fn captures_with_a_route_send_directly_and_spill_into_its_queue() {
    let read = |more: serde_json::Value| {
        let route = json!({ "to": "stdout:", "ordered": true, "queue": "mail" });
        let route = Route::read("r", route.as_object().unwrap()).unwrap();
        let mut settings = json!({ "outbox": "outbox", "route": "r" });
        let all = settings.as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        let settings = serde_json::from_value(settings).unwrap();
        let read = Capture::read("a", &settings, None, Some(&route));
        read.map_err(|error| error.to_string())
    };
    let capture = read(json!({})).unwrap();
    let direct = capture.direct.unwrap();
    assert_eq!((&*capture.queue, direct.spill_after), ("mail", 1 << 30));
    let minutes = |minutes: u64| Some(Duration::from_secs(minutes * 60));
    assert_eq!(direct.spill_after_time, minutes(5));
    let limits = json!({ "spill_after": "20 MiB", "spill_after_time": "2m" });
    let direct = read(limits).unwrap().direct.unwrap();
    assert_eq!(
        (direct.spill_after, direct.spill_after_time),
        (20 << 20, minutes(2))
    );
    let most = json!({ "spill_most": "3 TiB" });
    assert_eq!(direct.spill_most, 20 << 30);
    assert_eq!(read(most).unwrap().direct.unwrap().spill_most, 3 << 40);
    assert!(read(json!({ "spill_most": "much" })).is_err());
    let never = json!({ "spill_after": 7, "spill_after_time": "never" });
    let direct = read(never).unwrap().direct.unwrap();
    assert_eq!((direct.spill_after, direct.spill_after_time), (7, None));
    for (more, said) in [
        (json!({ "queue": "q" }), "queue: is the route's"),
        (
            json!({ "spill_after": "1GB" }),
            "spill_after: must be a size",
        ),
        (
            json!({ "spill_after_time": "soon" }),
            "spill_after_time: must be",
        ),
    ] {
        let error = read(more).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn errors_name_the_setting() {
    for (name, settings, said) in [
        ("a", json!({}), "name one of"),
        ("A", json!({ "outbox": "o" }), "name must have"),
        (
            "a",
            json!({ "outbox": "o", "tables": ["b"] }),
            "name one of",
        ),
        ("a", json!({ "outbox": "posthaste.job" }), "never captured"),
        (
            "a",
            json!({ "outbox": "o", "colour": 1 }),
            "colour: is no setting",
        ),
        (
            "a",
            json!({ "outbox": "o", "route": "r" }),
            "route: there is no such",
        ),
        (
            "a",
            json!({ "outbox": "o", "table": {} }),
            "is valid only with tables",
        ),
        (
            "a",
            json!({ "outbox": "o", "spill_after": 1 }),
            "is valid only with route",
        ),
        ("a", json!({ "messages": "a*b" }), "at the end only"),
        (
            "a",
            json!({ "messages": "a", "outbox_columns": {} }),
            "is valid only with outbox",
        ),
        ("a", json!({ "tables": [] }), "names no table"),
        (
            "a",
            json!({ "tables": ["a"], "table": { "b": {} } }),
            "not among",
        ),
        (
            "a",
            json!({ "tables": ["a"], "table": { "a": { "x": 1 } } }),
            "no setting",
        ),
        (
            "a",
            json!({ "outbox": "o", "outbox_columns": { "x": "y" } }),
            "none of id",
        ),
        ("a", json!({ "outbox": "o", "slot": "S" }), "slot:"),
        (
            "a",
            json!({ "tables": ["a"], "table": { "a": { "operations": ["merge"] } } }),
            "merge is none of",
        ),
    ] {
        let error = read(name, settings.clone()).unwrap_err();
        assert!(error.contains(said), "{settings}: {error}");
    }
}
