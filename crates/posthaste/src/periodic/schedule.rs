//! Calculates when periodic jobs are due: five cron fields in a time zone. Pure: reads no clock.

use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

/// Days that are searched before a schedule is rejected as having no ticks: 29 February falls on
/// the same day of the week again within forty years.
const MAX_SEARCHED_DAYS: usize = 366 * 41;

/// Five cron fields (minute, hour, day of the month, month, day of the week) in a time zone.
///
/// Accepts `*` (for a day `?` too), numbers, ranges (`1-5`), steps (`*/15`, `8-18/2`), lists
/// (`0,30`), the English names of months and days (`JAN`, `MON`), Sunday as 0 or 7, and `@hourly`,
/// `@daily`, `@weekly`, `@monthly`, `@yearly`. If both the day of the month and the day of the week
/// are restricted, a day that matches either is due, as in every cron.
///
/// When the clocks are set forward, a skipped time is shifted by the length of the gap (02:30
/// becomes 03:30). When they are set back, a repeated time is due only the first time, unless the
/// hour is `*`.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether the hour, the day and the weekday are unrestricted.
    any_hour: bool,
    any_day: bool,
    any_weekday: bool,
    zone: TimeZone,
}

/// First characters of an unrestricted field.
const WILDCARDS: [char; 2] = ['*', '?'];

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl Schedule {
    /// Parses a schedule; errors are sentences. The database refuses the same schedules with the
    /// same messages (sql/functions/schedule.sql).
    pub(crate) fn parse(text: &str, zone: &str) -> Result<Self, String> {
        let text = match text.trim_matches(|one: char| one.is_ascii_whitespace()) {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            text => text,
        };
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(format!("a schedule has five fields, not {}", fields.len()));
        };
        let zone = TimeZone::get(zone).map_err(|_| format!("no time zone is named {zone:?}"))?;
        let weekdays = parse_field("day of the week", weekday, 0, 7, &WEEKDAYS, 0)?;
        let schedule = Self {
            minutes: parse_field("minute", minute, 0, 59, &[], 0)?,
            hours: parse_field("hour", hour, 0, 23, &[], 0)?,
            days: parse_field("day of the month", day, 1, 31, &[], 0)?,
            months: parse_field("month", month, 1, 12, &MONTHS, 1)?,
            // Sunday has two numbers.
            weekdays: (weekdays | (weekdays >> 7)) & 0x7f,
            any_hour: hour.starts_with('*'),
            any_day: day.starts_with(WILDCARDS),
            any_weekday: weekday.starts_with(WILDCARDS),
            zone,
        };
        match schedule.next(Timestamp::UNIX_EPOCH) {
            Some(_) => Ok(schedule),
            None => Err("no such date exists".into()),
        }
    }

    /// Returns the first tick after this moment.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let first = after.to_zoned(self.zone.clone()).date().yesterday().ok()?;
        let mut days = first.series(1.day()).take(MAX_SEARCHED_DAYS);
        while let Some(day) = days.next() {
            let mut ticks = self.ticks_of(day, after);
            if ticks.is_empty() {
                continue;
            }
            // A tick that a change of the clocks moved past midnight may be later than one of the
            // next day.
            ticks.extend(
                days.next()
                    .into_iter()
                    .flat_map(|day| self.ticks_of(day, after)),
            );
            return ticks.into_iter().min();
        }
        None
    }

    /// Returns the newest ticks between two moments, at most this many, in ascending order.
    pub(crate) fn newest_ticks(
        &self,
        from: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> Vec<Timestamp> {
        let of = |moment: Timestamp| moment.to_zoned(self.zone.clone()).date();
        // A change of the clocks may move a tick of one day into the next.
        let first = of(from).yesterday().unwrap_or(of(from));
        let mut ticks = Vec::new();
        let mut day = of(until);
        while day >= first && ticks.len() < most {
            let of_day = self.ticks_of(day, Timestamp::MIN).into_iter();
            ticks.extend(of_day.filter(|tick| (from..=until).contains(tick)));
            let Ok(before) = day.yesterday() else { break };
            day = before;
        }
        ticks.sort_unstable();
        ticks.dedup();
        ticks.split_off(ticks.len().saturating_sub(most))
    }

    fn ticks_of(&self, day: Date, after: Timestamp) -> Vec<Timestamp> {
        if !self.is_day(day) {
            return Vec::new();
        }
        let of = |bits: u64| (0..60_i8).filter(move |n| (bits >> n) & 1 == 1);
        let times =
            of(self.hours).flat_map(|hour| of(self.minutes).map(move |minute| (hour, minute)));
        times
            .flat_map(|(hour, minute)| {
                let ambiguous = self.zone.to_ambiguous_timestamp(day.at(hour, minute, 0, 0));
                let comes_twice = matches!(ambiguous.offset(), AmbiguousOffset::Fold { .. });
                let second = (comes_twice && self.any_hour).then(|| ambiguous.later());
                [Some(ambiguous.compatible()), second]
            })
            .flatten()
            .flatten()
            .filter(|tick| *tick > after)
            .collect()
    }

    fn is_day(&self, day: Date) -> bool {
        let has = |bits: u64, n: i8| (bits >> n) & 1 == 1;
        let by_day = has(self.days, day.day());
        let by_weekday = has(self.weekdays, day.weekday().to_sunday_zero_offset());
        has(self.months, day.month())
            && if self.any_day || self.any_weekday {
                by_day && by_weekday
            } else {
                by_day || by_weekday
            }
    }
}

/// Parses one field into a set of bits; `names` stand for the numbers from `base` on.
fn parse_field(
    what: &str,
    text: &str,
    least: u32,
    most: u32,
    names: &[&str],
    base: u32,
) -> Result<u64, String> {
    let wrong = |part: &str| {
        format!(
            "{what}: {part:?} is not a number, range or step from {least} to \
                              {most}"
        )
    };
    let number = |text: &str| {
        let named = names
            .iter()
            .position(|name| name.eq_ignore_ascii_case(text));
        let number = match named {
            Some(at) => u32::try_from(at).ok().map(|at| at + base),
            None => parse_digits(text),
        };
        number.filter(|number| (least..=most).contains(number))
    };
    let mut bits = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                let step = parse_digits(step).filter(|step| *step > 0);
                (range, Some(step.ok_or_else(|| wrong(part))?))
            }
            None => (part, None),
        };
        let (from, to) = match (range, range.split_once('-')) {
            ("*" | "?", _) => (Some(least), Some(most)),
            (_, Some((from, to))) => (number(from), number(to)),
            // `5/15` begins at 5 and continues to the end.
            (single, None) => (
                number(single),
                if step.is_some() {
                    Some(most)
                } else {
                    number(single)
                },
            ),
        };
        match (from, to) {
            (Some(from), Some(to)) if from <= to => {
                (from..=to)
                    .step_by(step.map_or(1, |step| step as usize))
                    .for_each(|n| bits |= 1_u64 << n);
            }
            _ => return Err(wrong(part)),
        }
    }
    Ok(bits)
}

/// Parses a number without a sign, of at most nine digits.
fn parse_digits(text: &str) -> Option<u32> {
    let is_number = text.len() <= 9 && text.bytes().all(|one| one.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::Schedule;
    use jiff::Timestamp;

    /// The ticks after a moment, as local times of the zone.
    fn ticks(text: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let schedule = Schedule::parse(text, zone).expect("a schedule");
        let mut at: Timestamp = after.parse().expect("a time");
        let mut ticks = Vec::new();
        for _ in 0..count {
            at = schedule.next(at).expect("a tick");
            let local = at.in_tz(zone).expect("a zone");
            ticks.push(local.strftime("%a %Y-%m-%d %H:%M %:z").to_string());
        }
        ticks
    }

    #[test]
    fn ticks_are_ordered_and_unique() {
        assert_eq!(
            ticks("*/20 8-9 * * MON-FRI", "UTC", "2026-11-20T09:30:00Z", 4),
            [
                "Fri 2026-11-20 09:40 +00:00",
                "Mon 2026-11-23 08:00 +00:00",
                "Mon 2026-11-23 08:20 +00:00",
                "Mon 2026-11-23 08:40 +00:00"
            ]
        );
        assert_eq!(
            ticks("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 2),
            ["Tue 2028-02-29 00:00 +00:00", "Sun 2032-02-29 00:00 +00:00"]
        );
    }

    #[test]
    fn a_question_mark_restricts_no_day() {
        for (text, same) in [("0 3 ? * MON", "0 3 * * MON"), ("0 3 13 * ?", "0 3 13 * *")] {
            let of = |text| ticks(text, "UTC", "2026-11-10T00:00:00Z", 3);
            assert_eq!(of(text), of(same), "{text}");
        }
    }

    #[test]
    fn either_day_field_may_match_when_both_are_restricted() {
        assert_eq!(
            ticks("0 12 13 * FRI", "UTC", "2026-11-10T00:00:00Z", 3),
            [
                "Fri 2026-11-13 12:00 +00:00",
                "Fri 2026-11-20 12:00 +00:00",
                "Fri 2026-11-27 12:00 +00:00"
            ]
        );
        assert_eq!(
            ticks("0 12 * * 7", "UTC", "2026-11-10T00:00:00Z", 1),
            ["Sun 2026-11-15 12:00 +00:00"]
        );
    }

    #[test]
    fn skipped_local_times_fire_once_after_the_change() {
        assert_eq!(
            ticks("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3),
            [
                "Sat 2026-03-28 02:30 +01:00",
                "Sun 2026-03-29 03:30 +02:00",
                "Mon 2026-03-30 02:30 +02:00"
            ]
        );
        assert_eq!(
            ticks("0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", 2),
            ["Sun 2026-03-29 03:00 +02:00", "Sun 2026-03-29 04:00 +02:00"]
        );
    }

    #[test]
    fn repeated_local_times_fire_once_except_hourly_schedules() {
        assert_eq!(
            ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
            ["Sun 2026-10-25 02:30 +02:00", "Mon 2026-10-26 02:30 +01:00"]
        );
        assert_eq!(
            ticks("0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", 4),
            [
                "Sun 2026-10-25 02:00 +02:00",
                "Sun 2026-10-25 02:00 +01:00",
                "Sun 2026-10-25 03:00 +01:00",
                "Sun 2026-10-25 04:00 +01:00"
            ]
        );
    }

    #[test]
    fn rejects_invalid_schedules_with_a_reason() {
        for (text, zone, refusal) in [
            ("* * * *", "UTC", "a schedule has five fields, not 4"),
            (
                "60 * * * *",
                "UTC",
                "minute: \"60\" is not a number, range or step from 0 to 59",
            ),
            (
                "*/0 * * * *",
                "UTC",
                "minute: \"*/0\" is not a number, range or step from 0 to 59",
            ),
            (
                "0 0 5-1 * *",
                "UTC",
                "day of the month: \"5-1\" is not a number, range or step from 1 to 31",
            ),
            ("0 0 30 2 *", "UTC", "no such date exists"),
            ("@daily", "Mars/Base", "no time zone is named \"Mars/Base\""),
        ] {
            assert_eq!(Schedule::parse(text, zone).err().as_deref(), Some(refusal));
        }
    }
}
