#!/usr/bin/env bash
# Plays random schedules of the index sync, ten thousand of each kind or POSTHASTE_SCHEDULES, and
# prints one line. Fails unless all of them ran and end true; a line with POSTHASTE_SEED then names
# the one that does not.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

log=$(mktemp)
POSTHASTE_RAN=$(mktemp)
export POSTHASTE_RAN POSTHASTE_SCHEDULES=${POSTHASTE_SCHEDULES:-10000}
trap 'rm -f "$log" "$POSTHASTE_RAN"' EXIT

play() {
    cargo test --quiet -p posthaste-sync --all-features --test main -- \
        the_index_converges_within_two_polls_after
}
demand="schedules=$POSTHASTE_SCHEDULES schedules-elastic=$POSTHASTE_SCHEDULES"
# shellcheck disable=SC2086 # The demand is a list of words.
if play >"$log" 2>&1 && scripts/ran.sh "$POSTHASTE_RAN" $demand >>"$log"; then
    echo "sync: $POSTHASTE_SCHEDULES schedules of each kind end true; $SECONDS s in all"
else
    cat "$log"
    echo "sync: the schedules do NOT all end true"
    exit 1
fi
