//! Descriptions of sessions, transactions, slots and replicas that hold back vacuum.

use posthaste::{Holder, HolderKind};

fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// Returns the name of a holder.
pub fn holder_name(holder: &Holder) -> String {
    let name = non_empty(holder.name.as_ref()).unwrap_or("without a name");
    match holder.kind {
        HolderKind::Prepared => format!("prepared transaction {name}"),
        HolderKind::Slot => format!("replication slot {name}"),
        HolderKind::Replica => {
            let replica = non_empty(holder.application.as_ref()).unwrap_or("without a name");
            let address = non_empty(holder.address.as_ref()).unwrap_or("this machine");
            format!("a reader on replica {replica} ({address})")
        }
        _ => format!("session {}", holder.pid.unwrap_or_default()),
    }
}

/// Returns more about a holder: role, program, address, state.
pub fn holder_detail(holder: &Holder) -> String {
    let role = non_empty(holder.role.as_ref()).unwrap_or("no role");
    match holder.kind {
        HolderKind::Prepared => {
            let database = holder.database.as_deref().unwrap_or_default();
            format!("of {role} in database {database}")
        }
        HolderKind::Slot => match holder.is_read {
            true => "in use".to_owned(),
            false => "not in use".to_owned(),
        },
        HolderKind::Replica => non_empty(holder.state.as_ref())
            .unwrap_or("unknown")
            .to_owned(),
        _ => {
            let program = non_empty(holder.application.as_ref()).unwrap_or("no name");
            let address = non_empty(holder.address.as_ref()).unwrap_or("this machine");
            let state = non_empty(holder.state.as_ref()).unwrap_or("unknown");
            format!("{role}, {program}, from {address}, {state}")
        }
    }
}
