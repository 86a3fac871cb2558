//! Pictures must match what they draw, be small, be described in words, and fit both themes.

use std::collections::BTreeSet;

use posthaste::__private::{Event, next};
use posthaste::State;

use super::{files, read, root, shown};

const EVENTS: [Event; 16] = [
    Event::Due,
    Event::Blocked,
    Event::Unblocked,
    Event::Claimed,
    Event::Finished,
    Event::Failed,
    Event::Exhausted,
    Event::Snoozed,
    Event::GivenBack,
    Event::HandedOn,
    Event::Confirmed,
    Event::Discarded,
    Event::WorkerDied,
    Event::Expired,
    Event::Cancelled,
    Event::Redriven,
];
const STATES: [State; 12] = [
    State::Scheduled,
    State::Available,
    State::Blocked,
    State::Running,
    State::Retrying,
    State::Awaiting,
    State::Quarantined,
    State::Completed,
    State::Dead,
    State::Discarded,
    State::Expired,
    State::Cancelled,
];

#[test]
fn the_state_diagram_shows_exactly_the_transitions() {
    let picture = read(&root().join("docs/pictures/states-of-a-job.svg"));
    // An arrow, or a line of text for several, names the transitions that it draws.
    let mut drawn = BTreeSet::new();
    for part in picture.split("data-from=").skip(1) {
        let values: Vec<&str> = part.split('"').collect();
        for from in values[1].split(' ') {
            drawn.insert(format!("{from}: {} -> {}", values[3], values[5]));
        }
    }
    let mut law = BTreeSet::new();
    for from in STATES {
        for event in EVENTS {
            if let Ok(to) = next(from, event) {
                law.insert(format!("{from}: {event:?} -> {to}"));
            }
        }
    }
    assert_eq!(drawn, law);
    for state in STATES {
        assert!(picture.contains(&format!(">{state}</text>")), "{state}");
    }
}

#[test]
fn pictures_are_small_captioned_and_fit_both_themes() {
    let pictures = files("docs", &["svg"]);
    assert!(pictures.len() >= 4, "pictures are elsewhere: {pictures:?}");
    for file in pictures {
        let (name, text) = (shown(&file), read(&file));
        assert!(text.len() < 12 * 1024, "{name}: {} bytes", text.len());
        for part in ["<title", "<desc", "(prefers-color-scheme:dark)", "card"] {
            assert!(text.contains(part), "{name} has no {part}");
        }
        // A picture that a code host shows may load and run nothing.
        for part in ["<script", "<image", "href=", "@import", "@font-face"] {
            assert!(!text.contains(part), "{name} has {part}");
        }
    }
}
