//! Searches, as far as the crates use them: a few queries, sorting, and pages by `search_after`.

use std::cmp::Ordering;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::index::Doc;
use super::reply::Reply;

/// Whether a document matches a query.
pub(super) fn matches_query(
    query: &Value,
    id: &str,
    doc: &Doc,
    mappings: &Value,
    now: i64,
) -> Result<bool, Reply> {
    let Some((kind, body)) = query.as_object().and_then(|query| query.iter().next()) else {
        return Ok(query.is_null());
    };
    let source = doc.source.as_deref().unwrap_or(&Value::Null);
    Ok(match kind.as_str() {
        "match_all" => true,
        "ids" => values_of(&body["values"]).any(|value| value == id),
        "exists" => !get_field(source, body["field"].as_str().unwrap_or_default()).is_null(),
        "term" => single_entry(body).is_some_and(|(name, value)| {
            let wanted = value.get("value").unwrap_or(value);
            field_values(source, name).any(|held| held == wanted)
        }),
        "terms" => single_entry(body).is_some_and(|(name, wanted)| {
            values_of(wanted).any(|value| field_values(source, name).any(|held| held == value))
        }),
        "range" => single_entry(body).is_some_and(|(name, bounds)| {
            let is_time = field_type(mappings, name) == Some("date");
            let mut held = field_values(source, name);
            match is_time {
                true => held.any(|held| {
                    millis(held, now).is_some_and(|at| is_within(&at, bounds, Some(now)))
                }),
                false => held.any(|held| is_within(held, bounds, None)),
            }
        }),
        "bool" => {
            let all = |part: &str, wanted: bool| -> Result<bool, Reply> {
                for query in values_of(&body[part]) {
                    if matches_query(query, id, doc, mappings, now)? != wanted {
                        return Ok(false);
                    }
                }
                Ok(true)
            };
            let mut any = body["should"].is_null();
            for query in values_of(&body["should"]) {
                any |= matches_query(query, id, doc, mappings, now)?;
            }
            // If `must` or `filter` is present, `should` only raises the score.
            any |= !body["must"].is_null() || !body["filter"].is_null();
            all("must", true)? && all("filter", true)? && all("must_not", false)? && any
        }
        _ => {
            let reason = format!("unknown query [{kind}]");
            return Err(Reply::error(400, "parsing_exception", &reason));
        }
    })
}

/// Refuses sort keys of the other kind of server. By default, Elasticsearch 8 sorts by the place of
/// a document but not by its ID; OpenSearch 2 does the opposite.
pub(super) fn refuse_unsortable(sort: &Value, is_elasticsearch: bool) -> Result<(), Reply> {
    let (name, kind, reason) = match is_elasticsearch {
        true => (
            "_id",
            "illegal_argument_exception",
            "Fielddata access on the _id field is disallowed",
        ),
        false => (
            "_shard_doc",
            "query_shard_exception",
            "No mapping found for [_shard_doc] in order to sort on",
        ),
    };
    match values_of(sort).any(|by| sort_field(by) == name) {
        true => Err(Reply::error(400, kind, reason)),
        false => Ok(()),
    }
}

/// The sort values of a hit.
pub(super) fn sort_keys(sort: &Value, id: &str, doc: &Doc, mappings: &Value) -> Vec<Value> {
    let source = doc.source.as_deref().unwrap_or(&Value::Null);
    values_of(sort)
        .map(|by| match sort_field(by) {
            "_id" => json!(id),
            "_doc" | "_seq_no" | "_shard_doc" => json!(doc.seq_no),
            "_version" => json!(doc.version),
            name => {
                let kind = field_type(mappings, name).or(by[name]["unmapped_type"].as_str());
                // Of several values, the one that sorts first counts, in either direction.
                let values = field_values(source, name).filter(|value| !value.is_null());
                let value = match is_descending(by) {
                    true => values.max_by(|one, other| compare(one, other)),
                    false => values.min_by(|one, other| compare(one, other)),
                };
                match (value, kind) {
                    (Some(value), Some("date")) => millis(value, 0).unwrap_or_default(),
                    (Some(value), _) => value.clone(),
                    (None, kind) => missing_value_key(kind, is_descending(by)),
                }
            }
        })
        .collect()
}

/// Documents without a value sort last in either direction; for numbers, by an extreme number.
fn missing_value_key(kind: Option<&str>, falls: bool) -> Value {
    match kind {
        Some("long" | "date") if falls => json!(i64::MIN),
        Some("long" | "date") => json!(i64::MAX),
        _ => Value::Null,
    }
}

/// Compares two hits.
pub(super) fn compare_hits(sort: &Value, one: &[Value], other: &[Value]) -> Ordering {
    for (at, by) in values_of(sort).enumerate() {
        let (Some(one), Some(other)) = (one.get(at), other.get(at)) else {
            break;
        };
        let order = match (one.is_null(), other.is_null()) {
            (false, false) if is_descending(by) => compare(other, one),
            (false, false) => compare(one, other),
            (one, other) => one.cmp(&other),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

fn is_descending(by: &Value) -> bool {
    let orders = by.as_object().into_iter().flatten();
    orders
        .map(|(_, how)| how)
        .any(|how| *how == json!("desc") || how["order"] == json!("desc"))
}

fn sort_field(by: &Value) -> &str {
    match by {
        Value::String(name) => name,
        Value::Object(by) => by.keys().next().map_or("", String::as_str),
        _ => "",
    }
}

fn single_entry(body: &Value) -> Option<(&String, &Value)> {
    body.as_object()?.iter().find(|(name, _)| *name != "boost")
}

/// The values of an array, or the single value.
fn values_of(value: &Value) -> impl Iterator<Item = &Value> {
    let several = match value {
        Value::Array(values) => values.as_slice(),
        Value::Null => &[],
        value => std::slice::from_ref(value),
    };
    several.iter()
}

/// The values of a field, of a path, or of its `keyword` subfield. A path continues in each object
/// of an array.
fn field_values<'a>(source: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let path = name.strip_suffix(".keyword").unwrap_or(name).split('.');
    path.fold(vec![source], |values, part| {
        let objects = values.into_iter().flat_map(values_of);
        objects.map(|value| &value[part]).collect()
    })
    .into_iter()
    .flat_map(values_of)
}

fn get_field<'a>(source: &'a Value, name: &str) -> &'a Value {
    name.split('.').fold(source, |value, part| &value[part])
}

fn field_type<'a>(mappings: &'a Value, name: &str) -> Option<&'a str> {
    mappings["properties"][name]["type"].as_str()
}

/// Whether a value lies within these bounds, which are times if the current time is given.
fn is_within(held: &Value, bounds: &Value, now: Option<i64>) -> bool {
    let holds = |name: &str, fits: fn(Ordering) -> bool| match (&bounds[name], now) {
        (Value::Null, _) => true,
        (bound, Some(now)) => millis(bound, now).is_some_and(|bound| fits(compare(held, &bound))),
        (bound, None) => fits(compare(held, bound)),
    };
    holds("gt", Ordering::is_gt)
        && holds("gte", Ordering::is_ge)
        && holds("lt", Ordering::is_lt)
        && holds("lte", Ordering::is_le)
}

/// Parses a time in milliseconds: a number, a date and time, or an offset from now.
fn millis(value: &Value, now: i64) -> Option<Value> {
    let Value::String(text) = value else {
        return value.is_i64().then(|| value.clone());
    };
    let Some(shift) = text.strip_prefix("now") else {
        let at: Timestamp = text.parse().ok()?;
        return Some(json!(at.as_millisecond()));
    };
    if shift.is_empty() {
        return Some(json!(now));
    }
    let (count, unit) = shift.split_at_checked(shift.len() - 1)?;
    let unit = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let count: i64 = count.parse().ok()?;
    Some(json!(now + count * unit))
}

fn compare(one: &Value, other: &Value) -> Ordering {
    if let (Some(one), Some(other)) = (one.as_i64(), other.as_i64()) {
        return one.cmp(&other);
    }
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        _ => value_text(one).cmp(&value_text(other)),
    }
}

fn value_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
