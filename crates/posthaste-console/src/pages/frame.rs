//! The frame of every page: the navigation with its figures, and the footer.

use super::has_login;
use crate::app::App;
use crate::figures::{Cell, Figures};
use crate::guard::Visit;
use crate::notice;
use crate::{Role, format};

/// A page in the navigation.
pub(super) struct NavigationItem {
    pub(super) href: &'static str,
    pub(super) label: &'static str,
    /// The key that opens it after `g`.
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
    pub(super) items: Vec<NavigationItem>,
    pub(super) role: &'static str,
    pub(super) who: String,
    pub(super) as_of: Option<Cell>,
    pub(super) is_replica: bool,
    /// The database role, if the settings allow actions but its rights in the database do not.
    pub(super) powerless_role: Option<String>,
    /// Whether buttons are shown.
    pub(super) may_act: bool,
    pub(super) may_leave: bool,
    /// The address of this page, for forms that return to it.
    pub(super) back: String,
    /// The notice about the last action.
    pub(super) notice: Option<String>,
    pub(super) is_live: bool,
    /// Whether the page reloads itself.
    pub(super) retries: bool,
}

/// The address, the title, the letter and the figure of a page.
type Page = (&'static str, &'static str, &'static str, &'static str);

/// The pages; those of jobs are above the line, the others below it.
const NAVIGATION_PAGES: [Page; 14] = [
    ("/", "Overview", "o", ""),
    ("/queues", "Queues", "q", "margin.queues"),
    ("/jobs", "Jobs", "j", "margin.jobs"),
    ("/scheduled", "Scheduled", "s", "margin.scheduled"),
    ("/periodic", "Periodic", "p", ""),
    ("/dead", "Dead", "d", "margin.dead"),
    (EXPIRED_JOBS_ADDRESS, "Expired", "e", "margin.expired"),
    ("/destinations", "Destinations", "l", "margin.relays"),
    ("/sync", "Index sync", "i", ""),
    ("/captures", "Captures", "c", ""),
    ("/transactions", "Transactions", "h", "margin.holders"),
    ("/two-phase", "Two-phase", "b", ""),
    ("/workers", "Workers", "w", "margin.workers"),
    ("/settings", "Settings", ",", ""),
];
/// The address of expired jobs, which have their own item in the navigation.
pub(super) const EXPIRED_JOBS_ADDRESS: &str = "/dead?filter=state%3Aexpired";

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
        frame.place = format!("{} · {version}", format::one_line(&server.database, 40));
        frame.is_replica = server.is_replica;
        let would_act = visit.role == Role::Operator && !server.is_replica;
        frame.may_act = would_act && figures.role_may_act;
        let is_powerless = would_act && !figures.role_may_act;
        frame.powerless_role = is_powerless.then(|| format::one_line(&server.role, 60));
        frame.as_of = Some(figures.as_of());
        frame.is_live = true;
        frame.notice = visit.notice.as_deref().and_then(notice::notice_text);
        let cells = figures.navigation_cells();
        for (item, (_, _, _, key)) in frame.items.iter_mut().zip(NAVIGATION_PAGES) {
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
        let items = NAVIGATION_PAGES
            .into_iter()
            .map(|(href, label, letter, _)| NavigationItem {
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
            name: format::one_line(&app.settings.name, 40),
            place: String::new(),
            items: items.collect(),
            role: visit.role.name(),
            who: format::one_line(&visit.who, 60),
            as_of: None,
            is_replica: false,
            powerless_role: None,
            may_act: false,
            may_leave: has_login(app) && visit.is_authenticated(),
            back: visit.path.clone(),
            notice: None,
            is_live: false,
            retries: false,
        }
    }
}
