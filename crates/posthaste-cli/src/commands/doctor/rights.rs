//! What this user may do, and what that means: no IO.

use super::facts::{Rights, Server};
use super::findings::{Finding, hint, wrong};

pub(super) fn of_the_rights(server: &Server, rights: &Rights, found: &mut Vec<Finding>) {
    let me = &server.me;
    let may = |what: &str| {
        let what = format!("{me} may {what} and not work");
        let remedy = format!("if it is to work: GRANT posthaste_worker TO {me}");
        hint("rights", &what, &remedy)
    };
    match rights {
        Rights {
            may_look: true,
            may_work: true,
            functions_lacking,
            ..
        } => {
            if let Some(first) = functions_lacking.first() {
                let more = match functions_lacking.len() - 1 {
                    0 => String::new(),
                    1 => " and one more function".to_owned(),
                    more => format!(" and {more} more functions"),
                };
                let what = format!("{me} may not call {first}{more}: no worker works as {me}");
                let remedy = format!(
                    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA posthaste TO {me}; a function of the \
                     server itself is a superuser's to grant"
                );
                found.push(wrong("rights", &what, &remedy));
            }
        }
        Rights {
            may_look: true,
            may_enqueue: true,
            ..
        } => found.push(may("enqueue")),
        Rights {
            may_look: true,
            may_observe: true,
            ..
        } => found.push(may("look")),
        _ => found.push(wrong(
            "rights",
            &format!("{me} may neither enqueue nor work nor look"),
            &format!(
                "GRANT posthaste_producer TO {me}, or posthaste_worker, or posthaste_observer"
            ),
        )),
    }
    if !rights.roles_lacking.is_empty() {
        found.push(wrong(
            "roles",
            &format!(
                "roles that lack rights here: {}",
                rights.roles_lacking.join(", ")
            ),
            "run 'posthaste migrate --roles' again, as after each migration",
        ));
    }
}
