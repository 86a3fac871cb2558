//! What stands around every page: the margin with its figures, and the foot.

use super::has_login;
use crate::app::App;
use crate::figures::{Cell, Figures};
use crate::guard::Visit;
use crate::notice;
use crate::{Role, words};

/// A page in the margin.
pub(super) struct Item {
    pub(super) href: &'static str,
    pub(super) label: &'static str,
    /// `g` and this letter lead there.
    pub(super) letter: &'static str,
    pub(super) is_current: bool,
    pub(super) cell: Option<Cell>,
}

pub(super) struct Frame {
    pub(super) title: String,
    pub(super) nonce: String,
    /// The version of style and script.
    pub(super) assets: &'static str,
    /// The environment, such as production.
    pub(super) name: String,
    pub(super) place: String,
    pub(super) items: Vec<Item>,
    pub(super) role: &'static str,
    pub(super) who: String,
    pub(super) as_of: Option<Cell>,
    pub(super) is_replica: bool,
    /// The role that may act by the program's settings, and not by the database's rights.
    pub(super) powerless_role: Option<String>,
    /// Whether the buttons are there.
    pub(super) may_act: bool,
    pub(super) may_leave: bool,
    /// This page, for forms that come back to it.
    pub(super) back: String,
    /// What was just done.
    pub(super) notice: Option<String>,
    pub(super) is_live: bool,
    /// The page asks again by itself.
    pub(super) retries: bool,
}

/// Where it is, what it is called, its letter, and its figure in the margin.
type Page = (&'static str, &'static str, &'static str, &'static str);

/// Those of jobs stand above the line, those of the rest below it.
const PAGES: [Page; 14] = [
    ("/", "Overview", "o", ""),
    ("/queues", "Queues", "q", "margin.queues"),
    ("/jobs", "Jobs", "j", "margin.jobs"),
    ("/scheduled", "Scheduled", "s", "margin.scheduled"),
    ("/periodic", "Periodic", "p", ""),
    ("/dead", "Dead", "d", "margin.dead"),
    (EXPIRED, "Expired", "e", "margin.expired"),
    ("/destinations", "Destinations", "l", "margin.relays"),
    ("/sync", "Index sync", "i", ""),
    ("/captures", "Captures", "c", ""),
    ("/transactions", "Transactions", "h", "margin.holders"),
    ("/two-phase", "Two-phase", "b", ""),
    ("/workers", "Workers", "w", "margin.workers"),
    ("/settings", "Settings", ",", ""),
];
/// Jobs that expired, which have a place in the margin of their own.
pub(super) const EXPIRED: &str = "/dead?filter=state%3Aexpired";

impl Frame {
    pub(super) fn new(
        app: &App,
        visit: &Visit,
        figures: &Figures,
        title: impl Into<String>,
        current: &'static str,
    ) -> Self {
        let server = &figures.snapshot.server;
        let mut frame = Self::without_figures(app, visit, title, current);
        let version = server.version.split_whitespace().next().unwrap_or_default();
        frame.place = format!("{} · {version}", words::plain(&server.database, 40));
        frame.is_replica = server.is_replica;
        let would_act = visit.role == Role::Operator && !server.is_replica;
        frame.may_act = would_act && figures.role_may_act;
        let is_powerless = would_act && !figures.role_may_act;
        frame.powerless_role = is_powerless.then(|| words::plain(&server.role, 60));
        frame.as_of = Some(figures.as_of());
        frame.is_live = true;
        frame.notice = visit.notice.as_deref().and_then(notice::read);
        let cells = figures.margin();
        for (item, (_, _, _, key)) in frame.items.iter_mut().zip(PAGES) {
            item.cell = cells.iter().find(|cell| cell.key == key).cloned();
        }
        frame
    }

    pub(super) fn without_figures(
        app: &App,
        visit: &Visit,
        title: impl Into<String>,
        current: &str,
    ) -> Self {
        let items = PAGES.into_iter().map(|(href, label, letter, _)| Item {
            href,
            label,
            letter,
            is_current: href == current,
            cell: None,
        });
        Self {
            title: title.into(),
            nonce: visit.nonce.clone(),
            assets: super::assets::version(),
            name: words::plain(&app.settings.name, 40),
            place: String::new(),
            items: items.collect(),
            role: visit.role.name(),
            who: words::plain(&visit.who, 60),
            as_of: None,
            is_replica: false,
            powerless_role: None,
            may_act: false,
            may_leave: has_login(app) && visit.is_in(),
            back: visit.path.clone(),
            notice: None,
            is_live: false,
            retries: false,
        }
    }
}
