//! Findings about the rights of the session's role.

use crate::checks::{Checks, Rights};
use crate::finding::{Finding, Kind};

pub(super) fn findings(checks: &Checks) -> Vec<Finding> {
    let Some(rights) = &checks.rights else {
        return Vec::new();
    };
    let own = own_rights_finding(&checks.server.role, rights);
    own.into_iter()
        .chain(outdated_roles_finding(rights))
        .collect()
}

fn own_rights_finding(role: &str, rights: &Rights) -> Option<Finding> {
    if !rights.use_schema || !(rights.work || rights.enqueue || rights.observe) {
        return Some(Finding::new(
            Kind::RightsNone,
            format!("Role {role} may neither enqueue nor run nor read jobs."),
            format!(
                "Run GRANT posthaste_producer TO {role}, or posthaste_worker, or \
                 posthaste_observer."
            ),
        ));
    }
    if !rights.work {
        let may = if rights.enqueue { "enqueue" } else { "read" };
        return Some(Finding::new(
            Kind::RightsPartial,
            format!("Role {role} may {may} jobs, but not run them."),
            format!("If it should run jobs, run GRANT posthaste_worker TO {role}."),
        ));
    }
    let first = rights.missing_functions.first()?;
    let more = match rights.missing_functions.len() - 1 {
        0 => String::new(),
        1 => " and one more function".to_owned(),
        more => format!(" and {more} more functions"),
    };
    Some(Finding::new(
        Kind::RightsFunctions,
        format!("Role {role} may not call {first}{more}: workers of this role do not start."),
        format!(
            "Run GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA posthaste TO {role}. A superuser grants \
             functions of the server itself."
        ),
    ))
}

fn outdated_roles_finding(rights: &Rights) -> Option<Finding> {
    let roles = rights.outdated_roles.join(", ");
    (!roles.is_empty()).then(|| {
        Finding::new(
            Kind::RightsOutdated,
            format!("These roles lack rights to a part of the schema: {roles}."),
            "Run 'posthaste migrate --roles' again, as after each migration.",
        )
    })
}
