//! Requirements of a capture on its server and its tables. Pure.

use crate::source::Source;

/// The settings of the server.
#[derive(Debug, Clone)]
pub(crate) struct ServerSettings {
    pub(crate) wal_level: String,
    pub(crate) version: i32,
    pub(crate) may_replicate: bool,
    pub(crate) slots_left: i64,
    pub(crate) senders: i64,
}

/// A table to capture.
#[derive(Debug, Clone)]
pub(crate) struct CandidateTable {
    pub(crate) name: String,
    pub(crate) is_there: bool,
    pub(crate) kind: String,
    pub(crate) persistence: String,
    pub(crate) is_own: bool,
    pub(crate) columns: Vec<String>,
}

/// Why a capture cannot be installed on this server. `has_slot`: its slot exists.
pub(crate) fn check_server(server: &ServerSettings, has_slot: bool) -> Result<(), String> {
    if server.wal_level != "logical" {
        return Err(format!(
            "the server has wal_level = {}: set wal_level = logical, and restart it",
            server.wal_level
        ));
    }
    if !server.may_replicate {
        return Err("the role lacks the attribute REPLICATION: ALTER ROLE … REPLICATION".into());
    }
    if !has_slot && server.slots_left < 1 {
        return Err("no replication slot is free: raise max_replication_slots".into());
    }
    match server.senders < 1 {
        true => Err("the server has max_wal_senders = 0: raise it".into()),
        false => Ok(()),
    }
}

/// Servers from this version on synchronize slots to their standbys.
const MIN_VERSION_FAILOVER_SLOTS: i32 = 170_000;

/// Whether the slot is synchronized to standbys.
pub(crate) fn decide_failover(wanted: Option<bool>, version: i32) -> Result<bool, String> {
    match wanted {
        Some(true) if version < MIN_VERSION_FAILOVER_SLOTS => Err(format!(
            "failover needs PostgreSQL 17, and this server is {}: after a failover the capture \
             has a gap",
            version / 10_000
        )),
        None => Ok(version >= MIN_VERSION_FAILOVER_SLOTS),
        Some(wanted) => Ok(wanted),
    }
}

/// Servers from this version on can leave out replicated changes.
const MIN_VERSION_ORIGIN_FILTER: i32 = 160_000;

/// Why replicated changes cannot be left out.
pub(crate) fn check_origin(local_only: bool, version: i32) -> Result<(), String> {
    match local_only && version < MIN_VERSION_ORIGIN_FILTER {
        true => Err(format!(
            "origin = \"none\" needs PostgreSQL 16, and this server is {}",
            version / 10_000
        )),
        false => Ok(()),
    }
}

/// Why a table cannot be captured from this source.
pub(crate) fn check_table(table: &CandidateTable, source: &Source) -> Result<(), String> {
    let name = &table.name;
    if !table.is_there {
        return Err(format!("there is no table {name}"));
    }
    if !matches!(&*table.kind, "r" | "p") {
        return Err(format!(
            "{name} is not a table whose changes can be captured"
        ));
    }
    if table.persistence != "p" {
        return Err(format!(
            "changes of {name} are not in the write-ahead log: it is not logged"
        ));
    }
    if !table.is_own {
        return Err(format!(
            "{name} belongs to another role: the owner of a publication must own its tables. \
             'posthaste capture install --print' shows the statements for its owner"
        ));
    }
    match source {
        Source::Outbox { columns, .. } => {
            let has = |name: &str| table.columns.iter().any(|column| column == name);
            if let Some(lacking) = columns.renamed_columns().find(|column| !has(column)) {
                return Err(format!("{name} has no column {lacking}"));
            }
            for (named, usual) in columns.required_columns() {
                if named.is_none() && !usual.iter().any(|column| has(column)) {
                    return Err(format!(
                        "{name} has none of the columns {}: set your columns in outbox_columns",
                        usual.join(", ")
                    ));
                }
            }
            Ok(())
        }
        Source::Messages(_) | Source::Tables(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{CandidateTable, ServerSettings, check_server, check_table, decide_failover};
    use crate::source::{OutboxColumns, Source, TableName};

    fn server() -> ServerSettings {
        ServerSettings {
            wal_level: "logical".into(),
            version: 180_000,
            may_replicate: true,
            slots_left: 1,
            senders: 10,
        }
    }

    #[test]
    fn requires_logical_wal_rights_and_free_senders_and_slots() {
        assert_eq!(check_server(&server(), false), Ok(()));
        let refused = [
            ServerSettings {
                wal_level: "replica".into(),
                ..server()
            },
            ServerSettings {
                may_replicate: false,
                ..server()
            },
            ServerSettings {
                slots_left: 0,
                ..server()
            },
            ServerSettings {
                senders: 0,
                ..server()
            },
        ];
        for server in refused {
            assert!(check_server(&server, false).is_err(), "{server:?}");
        }
        let full = ServerSettings {
            slots_left: 0,
            ..server()
        };
        assert_eq!(check_server(&full, true), Ok(()));
    }

    #[test]
    fn slots_fail_over_by_default_where_the_server_can() {
        let all = [None, Some(true), Some(false)];
        assert_eq!(
            all.map(|wanted| decide_failover(wanted, 170_000)),
            [Ok(true), Ok(true), Ok(false)]
        );
        let older = all.map(|wanted| decide_failover(wanted, 160_009));
        assert_eq!((&older[0], &older[2]), (&Ok(false), &Ok(false)));
        assert!(older[1].clone().unwrap_err().contains("is 16"));
    }

    #[test]
    fn an_outbox_must_have_a_name_and_a_payload() {
        let table = |columns: &[&str]| CandidateTable {
            name: "public.outbox".into(),
            is_there: true,
            kind: "r".into(),
            persistence: "p".into(),
            is_own: true,
            columns: columns.iter().map(|one| (*one).to_owned()).collect(),
        };
        let outbox = |columns| Source::Outbox {
            table: TableName::read("public.outbox").unwrap(),
            columns,
        };
        let usual = outbox(OutboxColumns::default());
        assert_eq!(
            check_table(&table(&["id", "type", "payload"]), &usual),
            Ok(())
        );
        assert!(check_table(&table(&["id", "payload"]), &usual).is_err());
        assert!(check_table(&table(&["id", "type"]), &usual).is_err());
        let renamed = outbox(OutboxColumns {
            name: Some("kind".into()),
            payload: Some("data".into()),
            ..OutboxColumns::default()
        });
        assert_eq!(check_table(&table(&["kind", "data"]), &renamed), Ok(()));
        assert!(check_table(&table(&["kind", "payload"]), &renamed).is_err());
        let unlogged = CandidateTable {
            persistence: "u".into(),
            ..table(&["type", "payload"])
        };
        assert!(check_table(&unlogged, &usual).is_err());
    }
}
