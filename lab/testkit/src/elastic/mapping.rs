//! Mappings, as far as tests use them: known fields, and values of their types.

use serde_json::{Map, Value, json};

use super::reply::Reply;

/// Accepts a document, and adds its new fields to a dynamic mapping.
pub(super) fn admit_document(mappings: &mut Value, id: &str, source: &Value) -> Result<(), Reply> {
    let Some(fields) = source.as_object() else {
        return Err(refusal_reply(id, "the document is no object"));
    };
    // Everything is checked before anything is added: a refused document changes nothing.
    let mut grown = mappings.clone();
    let mode = dynamic_mode(&grown, "true");
    check_fields(&mut grown, &mode, id, "_doc", fields)?;
    *mappings = grown;
    Ok(())
}

fn dynamic_mode(mappings: &Value, inherited: &str) -> String {
    match &mappings["dynamic"] {
        Value::String(mode) => mode.clone(),
        Value::Bool(mode) => mode.to_string(),
        _ => inherited.to_owned(),
    }
}

fn check_fields(
    mappings: &mut Value,
    mode: &str,
    id: &str,
    within: &str,
    fields: &Map<String, Value>,
) -> Result<(), Reply> {
    for (name, value) in fields {
        let known = &mut mappings["properties"][name];
        if known.is_null() {
            match mode {
                "strict" => {
                    let reason = format!(
                        "mapping set to strict, dynamic introduction of [{name}] within [{within}] \
                         is not allowed"
                    );
                    return Err(Reply::error(
                        400,
                        "strict_dynamic_mapping_exception",
                        &reason,
                    ));
                }
                "false" => continue,
                _ => *known = guess_type(value),
            }
        }
        for_each_value(value, &mut |value| {
            check_value(known, mode, id, name, value)
        })?;
    }
    Ok(())
}

/// Checks each value of an array, which are values of one field.
fn for_each_value(
    value: &Value,
    check: &mut dyn FnMut(&Value) -> Result<(), Reply>,
) -> Result<(), Reply> {
    match value {
        Value::Array(values) => values
            .iter()
            .try_for_each(|value| for_each_value(value, check)),
        Value::Null => Ok(()),
        value => check(value),
    }
}

fn check_value(
    known: &mut Value,
    inherited: &str,
    id: &str,
    name: &str,
    value: &Value,
) -> Result<(), Reply> {
    // The field is stored but not parsed.
    if known["enabled"] == json!(false) {
        return Ok(());
    }
    let is_object = known["properties"].is_object() || known["type"] == json!("object");
    if let Value::Object(fields) = value {
        if !is_object && !known["type"].is_null() {
            return Err(refusal_reply(
                id,
                &format!("failed to parse field [{name}]"),
            ));
        }
        let mode = dynamic_mode(known, inherited);
        return check_fields(known, &mode, id, name, fields);
    }
    let fits = match known["type"].as_str() {
        Some("long" | "integer" | "short" | "double" | "float") => {
            value.is_number()
                || value
                    .as_str()
                    .is_some_and(|text| text.parse::<f64>().is_ok())
        }
        Some("boolean") => value.is_boolean() || matches!(value.as_str(), Some("true" | "false")),
        Some("object") => false,
        None => !is_object,
        // Text accepts any value; the values of dates are not checked.
        Some(_) => true,
    };
    if fits {
        Ok(())
    } else {
        Err(refusal_reply(
            id,
            &format!("failed to parse field [{name}]"),
        ))
    }
}

/// The type of a field that the mapping does not contain.
fn guess_type(value: &Value) -> Value {
    match value {
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(number) if number.is_f64() => json!({"type": "float"}),
        Value::Number(_) => json!({"type": "long"}),
        Value::String(_) => json!({"type": "text"}),
        Value::Object(_) => json!({"properties": {}}),
        Value::Array(values) => values.first().map_or(Value::Null, guess_type),
        Value::Null => Value::Null,
    }
}

fn refusal_reply(id: &str, why: &str) -> Reply {
    let reason = format!("{why} in document with id '{id}'");
    Reply::error(400, "mapper_parsing_exception", &reason)
}
