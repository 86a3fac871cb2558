//! The mutants, and the tests that must detect them.

/// A broken variant. `BUG` in a replacement is true if this variant is chosen.
pub(super) struct Mutant {
    pub(super) name: &'static str,
    /// The file, relative to `src`.
    pub(super) file: &'static str,
    pub(super) edits: &'static [(&'static str, &'static str)],
    /// The test, in the library or in `capture::`.
    pub(super) test: &'static str,
}

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "ids leave out the row within the record",
        file: "position.rs",
        edits: &[(
            ".chain_update(row.to_be_bytes())",
            ".chain_update((if BUG { 0 } else { row }).to_be_bytes())",
        )],
        test: "position::tests::ids_differ_by_capture_timeline_commit_record_kind_and_row",
    },
    Mutant {
        name: "ids leave out the timeline",
        file: "position.rs",
        edits: &[(
            ".chain_update(timeline.to_be_bytes())",
            ".chain_update((if BUG { 0 } else { timeline }).to_be_bytes())",
        )],
        test: "position::tests::ids_differ_by_capture_timeline_commit_record_kind_and_row",
    },
    Mutant {
        name: "ids leave out the time of the commit",
        file: "position.rs",
        edits: &[(
            ".chain_update(committed_at.to_be_bytes())",
            ".chain_update((if BUG { 0 } else { committed_at }).to_be_bytes())",
        )],
        test: "position::tests::ids_differ_by_capture_timeline_commit_record_kind_and_row",
    },
    Mutant {
        name: "a mark of another timeline is accepted",
        file: "store/mod.rs",
        edits: &[(
            "            [Some(true), Some(true)] => Ok((turn, snapshot)),",
            "            [Some(true), is_here] if BUG || is_here == Some(true) => \
             Ok((turn, snapshot)),",
        )],
        test: "capture::timelines::\
               places_of_an_abandoned_timeline_are_not_marked_on_the_promoted_server",
    },
    Mutant {
        name: "a row of a copy has the id of the change after its mark",
        file: "position.rs",
        edits: &[(
            ".chain_update(kind)",
            ".chain_update(if BUG { b\"\" } else { kind })",
        )],
        test: "position::tests::ids_differ_by_capture_timeline_commit_record_kind_and_row",
    },
    Mutant {
        name: "the last change is confirmed instead of the last commit",
        file: "batch.rs",
        edits: &[(
            "            done: self.end,\n        }\n    }",
            "            done: if BUG { self.end.max(self.last.record) } \
             else { self.end },\n        }\n    }",
        )],
        test: "batch::tests::a_slot_is_confirmed_up_to_whole_transactions_only",
    },
    Mutant {
        name: "a keepalive is confirmed while a batch is in hand",
        file: "batch.rs",
        edits: &[(
            "        if self.events.is_empty() {\n            self.end_transaction(end);",
            "        if self.events.is_empty() || BUG {\n            self.end_transaction(end);",
        )],
        test: "batch::tests::keepalives_confirm_nothing_while_events_are_pending",
    },
    Mutant {
        name: "a mark is committed apart from its jobs",
        file: "store/mod.rs",
        edits: &[(
            "            self.delete_rows(deletion, rows).await?;",
            "            if BUG {\n                \
             self.run(what, \"COMMIT\").await?;\n                \
             self.run(what, BEGIN).await?;\n            }\n            \
             self.delete_rows(deletion, rows).await?;",
        )],
        test: "capture::faults::failed_marks_leave_no_jobs",
    },
    Mutant {
        name: "it sends directly while one job is in hand",
        file: "store/direct.rs",
        edits: &[(
            "            if is_left {",
            "            if is_left && !(BUG && seconds.is_none()) {",
        )],
        test: "capture::routes::claimed_jobs_are_finished_before_direct_sending",
    },
    Mutant {
        name: "a chunk is compared with what comes after it was read",
        file: "copier.rs",
        edits: &[(
            "            current.changes.push((xid, touched));",
            "            let mut reading = current.reading.iter();\n            \
             if !(BUG && reading.any(|one| !one.page.is_finished())) {\n                \
             current.changes.push((xid, touched));\n            }",
        )],
        test: "capture::copies::copies_beside_writers_never_deliver_older_rows_after_newer_ones",
    },
    Mutant {
        name: "a chunk ignores that its table was truncated",
        file: "copying.rs",
        edits: &[(
            "                TouchedRows::All => return Vec::new(),",
            "                TouchedRows::All if BUG => {}\n                \
             TouchedRows::All => return Vec::new(),",
        )],
        test: "copying::tests::unseen_changes_remove_their_rows_from_the_chunk",
    },
    Mutant {
        name: "nulls of an old row that has its key only are values",
        file: "change.rs",
        edits: &[(
            "(is_full || column.is_key)",
            "(is_full || column.is_key || BUG)",
        )],
        test: "capture::sources::row_changes_become_jobs_with_all_known_values",
    },
    Mutant {
        name: "large values that were not changed are null",
        file: "change.rs",
        edits: &[(
            "            Value::Unchanged => unchanged.push(&*column.name),",
            "            Value::Unchanged if !BUG => unchanged.push(&*column.name),",
        )],
        test: "capture::sources::row_changes_become_jobs_with_all_known_values",
    },
    Mutant {
        name: "descriptions of tables are kept over a new connection",
        file: "assemble.rs",
        edits: &[(
            "                self.relations.insert(relation.oid, relation);",
            "                let relation = match BUG {\n                    \
             true => crate::mutant::kept(relation),\n                    \
             false => relation,\n                };\n                \
             self.relations.insert(relation.oid, relation);",
        )],
        test: "capture::histories::generated_histories_match_test_decoding",
    },
    Mutant {
        name: "what is marked is skipped by the place of its record alone",
        file: "assemble.rs",
        edits: &[(
            "        if position <= self.marked {\n            \
             return Ok(MessageEffect::default());",
            "        let is_skipped = BUG && position.record <= self.marked.record;\n        \
             if position <= self.marked || is_skipped {\n            \
             return Ok(MessageEffect::default());",
        )],
        test: "assemble::tests::unmarked_events_are_repeated_and_marked_ones_are_not",
    },
    Mutant {
        name: "a slot ahead of the mark is accepted",
        file: "slot.rs",
        edits: &[(
            "(slot.confirmed > done).then(",
            "(slot.confirmed > done && !BUG).then(",
        )],
        test: "capture::begun_again::misplaced_slots_are_gaps_until_the_capture_begins_again",
    },
    Mutant {
        name: "nobody asks whether others see a commit",
        file: "store/mod.rs",
        edits: &[(
            "            if !xids.all(|xid| snapshot.sees(*xid)) {",
            "            if !BUG && !xids.all(|xid| snapshot.sees(*xid)) {",
        )],
        test: "capture::faults::jobs_appear_only_after_their_rows_are_visible",
    },
    Mutant {
        name: "a lost connection keeps its slot as long as the server permits",
        file: "opening.rs",
        edits: &[(
            "    if timeout.is_zero() || timeout > DISCONNECT_AFTER {",
            "    if !BUG && (timeout.is_zero() || timeout > DISCONNECT_AFTER) {",
        )],
        test: "capture::faults::another_process_continues_after_a_connection_is_half_open",
    },
    Mutant {
        name: "a slot that fails over is confirmed before its mark is streamed",
        file: "confirmation.rs",
        edits: &[
            (
                "            Some(after) => {\n                self.held",
                "            Some(after) if !BUG => {\n                self.held",
            ),
            (
                "            None => self.confirmed = self.confirmed.max(done),",
                "            _ => self.confirmed = self.confirmed.max(done),",
            ),
        ],
        test: "confirmation::tests::positions_are_confirmed_after_the_stream_passes_their_mark",
    },
];
