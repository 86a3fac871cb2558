//! Re-indexes: a form selects documents without SQL, a preview follows, then the start.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use posthaste_sync::Reindex;

use super::frame::Frame;
use super::{check_may_act, page};
use crate::app::App;
use crate::audit;
use crate::fault::Fault;
use crate::filter::quote_for_shell;
use crate::form::{Fields, Form, Query};
use crate::format;
use crate::guard::Visit;
use crate::notice;
use crate::store;

/// The most ids of one form.
const MAX_IDS: usize = 10_000;
/// The most characters of the statement that are shown.
const MAX_STATEMENT_CHARS: usize = 4_000;

#[derive(Template)]
#[template(path = "reindex.html")]
struct PreviewPage {
    frame: Frame,
    table: String,
    about: String,
    statement: String,
    command: String,
    /// The selection, for the form that starts the re-index.
    fields: Vec<(&'static str, String)>,
}

/// The fields that select documents.
const SELECTION_FIELDS: [&str; 7] = [
    "by",
    "ids",
    "column",
    "value",
    "since",
    "until",
    "different",
];

pub(crate) async fn preview(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Result<Response, Fault> {
    let table = find_sync(&app, &fields).await?;
    let reindex = read_selection(&fields)?;
    let figures = app.collector.figures().await?;
    let plan = store::plan_reindex(&app.pool, &table, &reindex).await?;
    let about = plan.about.round() as i64;
    let sent = SELECTION_FIELDS
        .into_iter()
        .filter_map(|name| Some((name, fields.get(name)?.to_owned())));
    let preview = PreviewPage {
        frame: Frame::new(&app, &visit, &figures, "Re-index", "/sync"),
        about: format::pluralize(about, "document", "documents"),
        statement: format::several_lines(&plan.statement, MAX_STATEMENT_CHARS),
        command: equivalent_command(&table, &reindex),
        fields: sent.collect(),
        table,
    };
    Ok(page(StatusCode::OK, &preview))
}

pub(crate) async fn begin(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let table = find_sync(&app, &fields).await?;
    let reindex = read_selection(&fields)?;
    let on = format::one_line(&equivalent_command(&table, &reindex), 300);
    let begun = store::begin_reindex(&app.pool, &table, &reindex).await;
    let jobs = audit::log_outcome(&visit, "re-index", &on, begun)?;
    app.collector.invalidate().await;
    Ok(notice::redirect_with_notice("/sync", "reindex", jobs))
}

/// Returns the name of the sync, or a fault if it does not exist.
async fn find_sync(app: &App, fields: &Fields) -> Result<String, Fault> {
    let table = fields.text("table")?;
    let all = store::read_syncs(&app.pool).await?;
    match all.iter().any(|one| one.name == table) {
        true => Ok(table.to_owned()),
        false => Err(Fault::new(
            StatusCode::NOT_FOUND,
            format!("no sync is named {}", format::one_line(table, 60)),
            "The page Index sync lists all.",
        )),
    }
}

/// Reads the selection of a form. No part of it is ever used as SQL.
fn read_selection(fields: &Fields) -> Result<Reindex, Fault> {
    let text = |name| fields.get(name).map(str::to_owned);
    let all = Reindex {
        force: fields.get("different") != Some("yes"),
        ..Reindex::default()
    };
    if SELECTION_FIELDS
        .iter()
        .any(|name| fields.get(name).is_some_and(|value| value.contains('\0')))
    {
        return Err(Fault::bad_request("a value must not contain NUL"));
    }
    match fields.text("by")? {
        "all" => Ok(all),
        "ids" => Ok(Reindex {
            ids: Some(split_ids(fields.text("ids")?)?),
            ..all
        }),
        "value" => Ok(Reindex {
            column: Some(fields.text("column")?.to_owned()),
            equals: Some(fields.text("value")?.to_owned()),
            ..all
        }),
        "time" => {
            let (since, until) = (text("since"), text("until"));
            if since.is_none() && until.is_none() {
                return Err(Fault::bad_request("give a start or an end time"));
            }
            Ok(Reindex {
                column: Some(fields.text("column")?.to_owned()),
                since,
                until,
                ..all
            })
        }
        _ => Err(Fault::bad_request(
            "choose documents by all, ids, value or time",
        )),
    }
}

/// Splits ids on separate lines or separated by commas.
fn split_ids(typed: &str) -> Result<Vec<String>, Fault> {
    let ids = typed
        .split(['\n', '\r', ','])
        .map(str::trim)
        .filter(|id| !id.is_empty());
    let ids: Vec<String> = ids.map(str::to_owned).collect();
    match ids.len() {
        0 => Err(Fault::bad_request("no id is given")),
        1..=MAX_IDS => Ok(ids),
        _ => Err(Fault::bad_request(format!("at most {MAX_IDS} ids at once"))),
    }
}

/// Returns the equivalent command.
fn equivalent_command(table: &str, reindex: &Reindex) -> String {
    let mut command = format!("posthaste sync reindex {}", quote_for_shell(table));
    let condition = match (&reindex.column, &reindex.equals) {
        (Some(column), Some(value)) => {
            let column = column.replace('"', "\"\"");
            let value = value.replace('\'', "''");
            Some(format!("t.\"{column}\" = '{value}'"))
        }
        _ => None,
    };
    let column = reindex.column.clone().filter(|_| condition.is_none());
    let ids = reindex.ids.as_ref().map(|ids| ids.join(","));
    let options = [
        ("--ids", &ids),
        ("--where", &condition),
        ("--column", &column),
        ("--since", &reindex.since),
        ("--until", &reindex.until),
    ];
    let before = command.len();
    for (option, value) in options {
        if let Some(value) = value {
            command.push_str(&format!(" {option} {}", quote_for_shell(value)));
        }
    }
    if command.len() == before {
        command.push_str(" --all");
    }
    if !reindex.force {
        command.push_str(" --only-different");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_has_the_selected_options() {
        let of = |reindex: Reindex| equivalent_command("page", &reindex);
        assert_eq!(of(Reindex::default()), "posthaste sync reindex page --all");
        let one = Reindex {
            column: Some("own\"er".into()),
            equals: Some("it's".into()),
            force: false,
            ..Reindex::default()
        };
        let condition = r#"'t."own""er" = '\''it'\'''\''s'\'''"#;
        assert_eq!(
            of(one),
            format!("posthaste sync reindex page --where {condition} --only-different")
        );
        let ids = Reindex {
            ids: Some(split_ids("7, 8\r\n9\n").unwrap()),
            ..Reindex::default()
        };
        assert_eq!(of(ids), "posthaste sync reindex page --ids '7,8,9'");
    }
}
