//! Searches, as far as the crates' own go: a few queries, sorting, and pages by `search_after`.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::index::Doc;
use super::reply::Reply;

/// Whether a document is found.
pub(super) fn finds(query: &Value, id: &str, doc: &Doc, now: i64) -> Result<bool, Reply> {
    let Some((kind, body)) = query.as_object().and_then(|query| query.iter().next()) else {
        return Ok(query.is_null());
    };
    let source = doc.source.as_deref().unwrap_or(&Value::Null);
    Ok(match kind.as_str() {
        "match_all" => true,
        "ids" => list(&body["values"]).any(|value| value == id),
        "exists" => !field(source, body["field"].as_str().unwrap_or_default()).is_null(),
        "term" => one(body).is_some_and(|(name, value)| {
            let wanted = value.get("value").unwrap_or(value);
            held(source, name).any(|held| held == wanted)
        }),
        "terms" => one(body).is_some_and(|(name, wanted)| {
            list(wanted).any(|value| held(source, name).any(|held| held == value))
        }),
        "range" => one(body)
            .is_some_and(|(name, bounds)| held(source, name).any(|held| within(held, bounds, now))),
        "bool" => {
            let all = |part: &str, wanted: bool| -> Result<bool, Reply> {
                for query in list(&body[part]) {
                    if finds(query, id, doc, now)? != wanted {
                        return Ok(false);
                    }
                }
                Ok(true)
            };
            let mut any = body["should"].is_null();
            for query in list(&body["should"]) {
                any |= finds(query, id, doc, now)?;
            }
            // Beside what must hold, what should hold only raises the score.
            any |= !body["must"].is_null() || !body["filter"].is_null();
            all("must", true)? && all("filter", true)? && all("must_not", false)? && any
        }
        _ => {
            let reason = format!("unknown query [{kind}]");
            return Err(Reply::error(400, "parsing_exception", &reason));
        }
    })
}

/// What a hit is sorted by.
pub(super) fn keys(sort: &Value, id: &str, doc: &Doc, mappings: &Value) -> Vec<Value> {
    let source = doc.source.as_deref().unwrap_or(&Value::Null);
    list(sort)
        .map(|by| match name_of(by) {
            "_id" => json!(id),
            "_doc" | "_seq_no" => json!(doc.seq_no),
            "_version" => json!(doc.version),
            name => {
                let kind = mappings["properties"][name]["type"].as_str();
                let kind = kind.or(by[name]["unmapped_type"].as_str());
                // Of several values the one that comes first, whichever way.
                let values = held(source, name).filter(|value| !value.is_null());
                let value = match falls(by) {
                    true => values.max_by(|one, other| compare(one, other)),
                    false => values.min_by(|one, other| compare(one, other)),
                };
                value.cloned().unwrap_or_else(|| last(kind, falls(by)))
            }
        })
        .collect()
}

/// What has no value comes last, whichever way: numbers by a number.
fn last(kind: Option<&str>, falls: bool) -> Value {
    match kind {
        Some("long" | "date") if falls => json!(i64::MIN),
        Some("long" | "date") => json!(i64::MAX),
        _ => Value::Null,
    }
}

/// Which of two hits comes first.
pub(super) fn order(sort: &Value, one: &[Value], other: &[Value]) -> Ordering {
    for (at, by) in list(sort).enumerate() {
        let (Some(one), Some(other)) = (one.get(at), other.get(at)) else {
            break;
        };
        let order = match (one.is_null(), other.is_null()) {
            (false, false) if falls(by) => compare(other, one),
            (false, false) => compare(one, other),
            (one, other) => one.cmp(&other),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

fn falls(by: &Value) -> bool {
    let orders = by.as_object().into_iter().flatten();
    orders
        .map(|(_, how)| how)
        .any(|how| *how == json!("desc") || how["order"] == json!("desc"))
}

fn name_of(by: &Value) -> &str {
    match by {
        Value::String(name) => name,
        Value::Object(by) => by.keys().next().map_or("", String::as_str),
        _ => "",
    }
}

fn one(body: &Value) -> Option<(&String, &Value)> {
    body.as_object()?.iter().find(|(name, _)| *name != "boost")
}

/// One, or several.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    let several = match value {
        Value::Array(values) => values.as_slice(),
        Value::Null => &[],
        value => std::slice::from_ref(value),
    };
    several.iter()
}

/// The values of a field, of a path, or of its raw words. A path goes through each of several objects.
fn held<'a>(source: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let path = name.strip_suffix(".keyword").unwrap_or(name).split('.');
    path.fold(vec![source], |values, part| {
        let objects = values.into_iter().flat_map(list);
        objects.map(|value| &value[part]).collect()
    })
    .into_iter()
    .flat_map(list)
}

fn field<'a>(source: &'a Value, name: &str) -> &'a Value {
    name.split('.').fold(source, |value, part| &value[part])
}

fn within(held: &Value, bounds: &Value, now: i64) -> bool {
    let bound = |name: &str| match &bounds[name] {
        Value::Null => None,
        Value::String(text) if text == "now" => Some(json!(now)),
        value => Some(value.clone()),
    };
    bound("gt").is_none_or(|bound| compare(held, &bound) == Ordering::Greater)
        && bound("gte").is_none_or(|bound| compare(held, &bound) != Ordering::Less)
        && bound("lt").is_none_or(|bound| compare(held, &bound) == Ordering::Less)
        && bound("lte").is_none_or(|bound| compare(held, &bound) != Ordering::Greater)
}

fn compare(one: &Value, other: &Value) -> Ordering {
    if let (Some(one), Some(other)) = (one.as_i64(), other.as_i64()) {
        return one.cmp(&other);
    }
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        _ => text(one).cmp(&text(other)),
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
