//! Mappings of the fields of documents, derived from the types of their columns unless the
//! definition has mappings. Without a mapping, a server takes the type of the first value that it
//! receives, and refuses or omits values of other types. No IO.

use serde_json::{Map, Value, json};

use super::document::POSTHASTE_FIELD;
use crate::Field;

/// Names of top-level fields that the server reserves.
const RESERVED_FIELDS: [&str; 19] = [
    "_data_stream_timestamp",
    "_doc_count",
    "_feature",
    "_field_names",
    "_id",
    "_ignored",
    "_index",
    "_inference_fields",
    "_nested_path",
    "_primary_term",
    "_routing",
    "_seq_no",
    "_size",
    "_source",
    "_tier",
    "_ts_routing_hash",
    "_tsid",
    "_type",
    "_version",
];

/// Returns the reason why no document can have a field of this name, or `None` if one can.
pub(super) fn field_problem(name: &str) -> Option<&'static str> {
    if name == POSTHASTE_FIELD {
        return Some("the sync has a field of this name");
    }
    if RESERVED_FIELDS.contains(&name) {
        return Some("the server has a field of this name");
    }
    let is_empty = name.split('.').any(|part| part.trim().is_empty());
    is_empty.then_some("a name, or a part between its dots, is empty")
}

/// Returns the definition, with derived mappings if it has none.
pub(super) fn with_mappings(users: &Value, fields: &[Field]) -> Value {
    let mut definition = users.clone();
    if users.get("mappings").is_none() {
        definition["mappings"] = derive_mappings(fields);
    }
    definition
}

fn derive_mappings(fields: &[Field]) -> Value {
    let mut properties = Map::new();
    // The part before a dot may be a column too.
    let plain = |field: &&Field| field_problem(&field.name).is_none() && !field.name.contains('.');
    for field in fields.iter().filter(plain) {
        if let Some(mapping) = column_mapping(&field.column_type) {
            properties.insert(field.name.clone(), mapping);
        }
    }
    // For values in JSON columns, and for documents of a statement.
    let number = |of: &str| json!({"match_mapping_type": of, "mapping": number_mapping()});
    json!({
        "date_detection": false,
        "dynamic_templates": [
            {"whole_numbers": number("long")},
            {"numbers": number("double")},
        ],
        "properties": properties,
    })
}

/// Returns the mapping of a column of this type, or `None` if the type of its JSON value decides.
fn column_mapping(column_type: &str) -> Option<Value> {
    Some(match column_type {
        "json" | "jsonb" => return None,
        "int2" | "int4" | "int8" => json!({"type": "long"}),
        "float4" | "float8" | "numeric" => number_mapping(),
        "bool" => json!({"type": "boolean"}),
        // Infinity and years before Christ are malformed dates.
        "date" | "timestamp" | "timestamptz" => json!({"type": "date", "ignore_malformed": true}),
        "uuid" | "enum" | "time" | "timetz" | "interval" | "inet" | "cidr" | "macaddr"
        | "macaddr8" | "bit" | "varbit" | "bytea" | "range" | "money" | "oid" => keyword_mapping(),
        _ => json!({"type": "text", "fields": {"keyword": keyword_mapping()}}),
    })
}

/// NaN and infinity are strings in JSON.
fn number_mapping() -> Value {
    json!({"type": "double", "ignore_malformed": true})
}

fn keyword_mapping() -> Value {
    json!({"type": "keyword", "ignore_above": 256})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, column_type: &str) -> Field {
        Field {
            name: name.into(),
            column_type: column_type.into(),
        }
    }

    #[test]
    fn columns_have_the_mapping_of_their_type() {
        let fields = [
            field("title", "text"),
            field("price", "numeric"),
            field("at", "timestamptz"),
            field("more", "jsonb"),
            field("_id", "int8"),
            field("posthaste", "text"),
            field("a.b", "text"),
        ];
        let made = with_mappings(&json!({"settings": {"a": 1}}), &fields);
        assert_eq!(made["settings"]["a"], 1);
        assert_eq!(made["mappings"]["date_detection"], false);
        let properties = made["mappings"]["properties"].as_object().unwrap();
        let types = properties
            .iter()
            .map(|(name, of)| (&**name, of["type"].as_str()));
        let mut types: Vec<_> = types.collect();
        types.sort_unstable();
        let expected = [
            ("at", Some("date")),
            ("price", Some("double")),
            ("title", Some("text")),
        ];
        assert_eq!(types, expected);
    }

    #[test]
    fn mappings_in_the_users_definition_are_not_replaced() {
        let users = json!({"mappings": {"properties": {"title": {"type": "keyword"}}}});
        assert_eq!(with_mappings(&users, &[field("title", "text")]), users);
    }

    #[test]
    fn impossible_field_names_have_a_problem() {
        for name in ["_id", "_source", "posthaste", "", "a.", ".a", "a..b", " "] {
            assert!(field_problem(name).is_some(), "{name:?}");
        }
        for name in ["id", "_mine", "a.b", "version"] {
            assert_eq!(field_problem(name), None, "{name:?}");
        }
    }
}
