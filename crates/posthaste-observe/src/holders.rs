//! Descriptions of sessions, transactions, slots and replicas that hold back vacuum.

use posthaste::{Holder, HolderKind};

fn text(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// Returns the name of a holder.
pub fn holder_name(holder: &Holder) -> String {
    let name = text(holder.name.as_ref()).unwrap_or("without a name");
    match holder.kind {
        HolderKind::Prepared => format!("prepared transaction {name}"),
        HolderKind::Slot => format!("replication slot {name}"),
        HolderKind::Replica => {
            let replica = text(holder.application.as_ref()).unwrap_or("without a name");
            let address = text(holder.address.as_ref()).unwrap_or("this machine");
            format!("a reader on replica {replica} ({address})")
        }
        _ => format!("session {}", holder.pid.unwrap_or_default()),
    }
}

/// Returns more about a holder: role, program, address, state.
pub fn holder_detail(holder: &Holder) -> String {
    let role = text(holder.role.as_ref()).unwrap_or("no role");
    match holder.kind {
        HolderKind::Prepared => {
            let database = holder.database.as_deref().unwrap_or_default();
            format!("of {role} in database {database}")
        }
        HolderKind::Slot => match holder.is_read {
            true => "in use".to_owned(),
            false => "not in use".to_owned(),
        },
        HolderKind::Replica => text(holder.state.as_ref()).unwrap_or("unknown").to_owned(),
        _ => {
            let program = text(holder.application.as_ref()).unwrap_or("no name");
            let address = text(holder.address.as_ref()).unwrap_or("this machine");
            let state = text(holder.state.as_ref()).unwrap_or("unknown");
            format!("{role}, {program}, from {address}, {state}")
        }
    }
}
