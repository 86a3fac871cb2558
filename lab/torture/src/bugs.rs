//! Stores, workers, producers and relays that are broken on purpose, and the rules that must detect
//! each: the tests of the checker.

mod misbehavior;
mod played;

use crate::check::Rule;
use crate::history::Kind;
use crate::plan::{Pace, Processes};
pub use misbehavior::Misbehavior;
pub use played::Caught;

/// A bug.
pub struct Bug {
    /// A description of what is broken.
    pub name: &'static str,
    /// Edits of the schema: a passage and its replacement; `@k@` is a slot's number.
    pub edits: &'static [(&'static str, &'static str)],
    /// The misbehavior of a process.
    pub misbehavior: Option<Misbehavior>,
    /// The processes that carry the jobs.
    pub processes: Processes,
    /// The load during the round.
    pub pace: Pace,
    /// Whether the servers have separate clocks.
    pub clocked: bool,
    /// The faults without which the bug would do no harm.
    pub faults: &'static [(Kind, u64)],
    /// The rules of which one must detect it.
    pub rules: &'static [Rule],
}

/// All bugs.
pub const BUGS: &[Bug] = &[
    Bug::in_store(
        "a copy works",
        &[(
            "WHEN p_known IS NOT NULL",
            "WHEN true THEN true WHEN p_known IS NOT NULL",
        )],
        &[Rule::Copied],
    )
    .under(&[(Kind::Copy, 1)]),
    Bug::in_store(
        "a promoted job is dropped now and then",
        &[(
            "WHERE o.expires_at > v_now),",
            "WHERE o.expires_at > v_now AND o.id % 7 <> 0),",
        )],
        &[Rule::H1],
    ),
    Bug::in_store(
        "a retry is closed and forgotten",
        &[(
            "WHERE v.kind = 1 OR (v.kind = 8 AND j.crashes = 0);",
            "WHERE (v.kind = 1 AND j.id % 3 > 0) OR (v.kind = 8 AND j.crashes = 0);",
        )],
        &[Rule::H1],
    ),
    Bug::in_store(
        "the cursor steps back by a job",
        &[(
            "SELECT batch, lo, hi, to_xid, to_id, exhausted INTO w.batch",
            "SELECT batch, lo, hi, to_xid, CASE WHEN batch % 3 = 0 THEN to_id - 1 \
             ELSE to_id END, exhausted INTO w.batch",
        )],
        &[Rule::H4],
    ),
    Bug::in_store(
        "a job that is done comes back",
        &[(
            "WHERE v.kind = 1 OR (v.kind = 8 AND j.crashes = 0);",
            "WHERE v.kind = 1 OR (v.kind = 0 AND j.id % 5 = 0) OR (v.kind = 8 AND j.crashes = 0);",
        )],
        &[Rule::H4],
    ),
    Bug::in_store(
        "a discarded job comes back",
        &[(
            "WHERE v.kind = 1 OR (v.kind = 8 AND j.crashes = 0);",
            "WHERE v.kind IN (1, 2) OR (v.kind = 8 AND j.crashes = 0);",
        )],
        &[Rule::H4],
    ),
    Bug::in_store(
        "nobody is rescued",
        &[(
            "UPDATE posthaste.worker SET stopped_at = coalesce(stopped_at, clock_timestamp()) \
             WHERE id = p_worker AND beat = p_beat;\n  IF NOT FOUND THEN",
            "IF true THEN",
        )],
        &[Rule::H6, Rule::H1],
    )
    .under(&[(Kind::Kill, 4)]),
    Bug::in_store(
        "the living lose their jobs with the dead",
        &[(
            "WHERE c.worker = p_worker AND (p_token IS NULL OR c.token = p_token)",
            "WHERE (p_token IS NULL OR c.token = p_token)",
        )],
        &[Rule::H4],
    )
    .under(&[(Kind::Kill, 2), (Kind::Termination, 10)]),
    Bug::in_store(
        "what is kept is thrown away",
        &[(
            "WHERE v.kind = 2 ON CONFLICT (id) DO NOTHING;",
            "WHERE v.kind = 2 AND false ON CONFLICT (id) DO NOTHING;",
        )],
        &[Rule::H1],
    ),
    Bug::in_store(
        "a scheduled job with a key goes to the ready log at once",
        &[(
            "SELECT job, CASE WHEN scheduled_at > moment \
             AND scheduled_at > posthaste.promote_horizon()",
            "SELECT job, CASE WHEN unique_key IS NULL AND scheduled_at > moment \
             AND scheduled_at > posthaste.promote_horizon()",
        )],
        &[Rule::Due],
    ),
    Bug::in_store(
        "a retry forgets its attempts",
        &[(
            "posthaste.reschedule_row(j, s.slot, v.due, b.attempt, 0::smallint, v.error) a",
            "posthaste.reschedule_row(j, s.slot, v.due, 0, 0::smallint, v.error) a",
        )],
        &[Rule::Attempts],
    ),
    Bug::in_store(
        "claims do not look at the end of a job's time",
        &[(
            "r.kwargs_bytes, r.expires_at <= clock_timestamp() FROM",
            "r.kwargs_bytes, false FROM",
        )],
        &[Rule::Due],
    ),
    Bug::in_store(
        "a second job gets a key that is taken",
        &[(
            "ON CONFLICT DO NOTHING;\n      EXIT WHEN FOUND;",
            "ON CONFLICT DO NOTHING;\n      EXIT WHEN true;",
        )],
        &[Rule::H2, Rule::Unique],
    ),
    Bug::in_store(
        "a key is let go when its job is claimed",
        &[(
            "INTO o_batch, o_last;\n  IF NOT o_mixed AND EXISTS (SELECT FROM \
             posthaste.closed_unclaimed_@k@)",
            "INTO o_batch, o_last;\n  DELETE FROM posthaste.unique_key u USING \
             posthaste.batch_rows_@k@(o_batch, p_token) r WHERE u.id = r.id;\n  \
             IF NOT o_mixed AND EXISTS (SELECT FROM posthaste.closed_unclaimed_@k@)",
        )],
        &[Rule::Unique],
    ),
    Bug::in_store(
        "a key is never let go",
        &[(
            "WHERE v.kind = 0 AND u.key = j.unique_key AND u.id = j.id;",
            "WHERE false AND u.key = j.unique_key AND u.id = j.id;",
        )],
        &[Rule::H6],
    ),
    Bug::in_store(
        "arguments are written as text and back",
        &[(
            "r.kwargs\n    FROM posthaste.batch_rows_@k@(p_batch, p_token) r\n   WHERE NOT p_mixed",
            "replace(r.kwargs::text, 'null', '0')::jsonb\n    \
             FROM posthaste.batch_rows_@k@(p_batch, p_token) r\n   WHERE NOT p_mixed",
        )],
        &[Rule::H7],
    ),
    Bug::in_store(
        "a confirmation is not heard",
        &[(
            "INSERT INTO posthaste.confirmed (id) VALUES (v_id) ON CONFLICT DO NOTHING;\n  END IF;",
            "NULL;\n  END IF;",
        )],
        &[Rule::H4],
    ),
    Bug::in_store(
        "a key that is taken counts as free",
        &[(
            "NOT EXISTS (SELECT FROM posthaste.ordering_position(k.key) s WHERE NOT s.is_free)",
            "true",
        )],
        &[Rule::H5],
    ),
    Bug::in_store(
        "the last job of an ordering key comes first",
        &[(
            "ORDER BY r.ordering_key, r.turn LIMIT 1",
            "ORDER BY r.ordering_key DESC, r.turn DESC LIMIT 1",
        )],
        &[Rule::H5, Rule::H6],
    ),
    Bug::in_store(
        "what is due is published late",
        &[(
            "v_now timestamptz := clock_timestamp();\n  v_until timestamptz;\n  v_due boolean;",
            "v_now timestamptz := clock_timestamp() - interval '1500 ms';\n  \
             v_until timestamptz;\n  v_due boolean;",
        )],
        &[Rule::Prompt],
    )
    .while_idle(),
    Bug::in_store(
        "a step back is not followed",
        &[(
            "RETURN posthaste.return_to_earlier_segment(v_now);",
            "RETURN false;",
        )],
        &[Rule::Due, Rule::Attempts],
    )
    .clocked(&[(Kind::ClockStep, 2)]),
    Bug::in_store(
        "a back-off waits for a clock that was ahead",
        &[(
            "THEN t_lo + interval '1 hour' ELSE",
            "THEN '-infinity'::timestamptz ELSE",
        )],
        &[Rule::Prompt],
    )
    .clocked(&[(Kind::ClockStep, 2)]),
    Bug::in_store(
        "a tick that was enqueued comes again",
        &[("IF NOT p.made @> v_tick THEN", "IF true THEN")],
        &[Rule::H4],
    )
    .clocked(&[(Kind::ClockStep, 2)]),
    Bug::in_people(
        "work is acknowledged before it is done",
        Misbehavior::AcknowledgesFirst,
        &[Rule::H1],
    )
    .under(&[(Kind::Kill, 6)]),
    Bug::in_people(
        "two workers share a fence",
        Misbehavior::SharesAFence,
        &[Rule::H8],
    ),
    Bug::in_people(
        "a producer enqueues beside its transaction",
        Misbehavior::WritesTwice,
        &[Rule::H2],
    ),
    Bug::in_people(
        "a producer takes silence for a no",
        Misbehavior::TakesSilenceForNo,
        &[Rule::H2],
    )
    .under(&[(Kind::HalfAnswer, 12)]),
    Bug::in_relays(
        "a relay acknowledges before the answer",
        Misbehavior::AnswersFirst,
        &[Rule::H1],
    )
    .under(&[(Kind::RelayKill, 6)]),
    Bug::in_relays(
        "a relay takes silence for a yes",
        Misbehavior::TakesSilenceForYes,
        &[Rule::H1],
    )
    .under(&[(Kind::RedisFull, 6), (Kind::RelayCut, 6)]),
    Bug::in_relays(
        "a relay answers for a message that it did not send",
        Misbehavior::DropsTheLast,
        &[Rule::H1],
    ),
    Bug::in_relays(
        "a relay gives a message another id each time",
        Misbehavior::NamesAnew,
        &[Rule::Identity],
    )
    .under(&[(Kind::RedisLoss, 6)]),
    Bug::in_relays(
        "a relay does not look for the message that costs it its connection",
        Misbehavior::IsolatesNothing,
        &[Rule::H1, Rule::H6],
    ),
    Bug::in_relays(
        "a relay uses up attempts while a server is away",
        Misbehavior::BlamesTheMessage,
        &[Rule::Attempts],
    )
    .under(&[(Kind::RedisFull, 4), (Kind::RedisKill, 4)]),
    Bug::in_relays(
        "ordered relays send side by side",
        Misbehavior::SendsSideBySide,
        &[Rule::H5],
    ),
    Bug::in_relays(
        "a relay closes what its receiver has not confirmed",
        Misbehavior::StopsAtAcceptance,
        &[Rule::H1],
    )
    .under(&[(Kind::RedisLoss, 6)]),
    Bug::in_people(
        "a capture loses an event",
        Misbehavior::LosesAnEvent,
        &[Rule::Captured],
    ),
    Bug::in_people(
        "a capture writes a job twice",
        Misbehavior::WritesAJobTwice,
        &[Rule::Captured],
    ),
    Bug::in_people(
        "a capture swaps events",
        Misbehavior::SwapsEvents,
        &[Rule::Captured],
    ),
];

impl Bug {
    const fn in_store(
        name: &'static str,
        edits: &'static [(&'static str, &'static str)],
        rules: &'static [Rule],
    ) -> Self {
        Self {
            name,
            edits,
            misbehavior: None,
            processes: Processes::Workers,
            pace: Pace::Busy,
            clocked: false,
            faults: &[],
            rules,
        }
    }

    const fn in_people(
        name: &'static str,
        misbehavior: Misbehavior,
        rules: &'static [Rule],
    ) -> Self {
        Self {
            name,
            edits: &[],
            misbehavior: Some(misbehavior),
            processes: Processes::Workers,
            pace: Pace::Busy,
            clocked: false,
            faults: &[],
            rules,
        }
    }

    const fn in_relays(
        name: &'static str,
        misbehavior: Misbehavior,
        rules: &'static [Rule],
    ) -> Self {
        Self {
            processes: Processes::Relays,
            ..Self::in_people(name, misbehavior, rules)
        }
    }

    const fn under(mut self, faults: &'static [(Kind, u64)]) -> Self {
        self.faults = faults;
        self
    }

    const fn clocked(mut self, faults: &'static [(Kind, u64)]) -> Self {
        self.clocked = true;
        self.under(faults)
    }

    const fn while_idle(mut self) -> Self {
        self.pace = Pace::Idle;
        self
    }
}
