#!/usr/bin/env bash
# Runs what the two-phase commit is believed for, and prints one line for each part: the model, the schedules, the real server.
# POSTHASTE_SCHEDULES says how many schedules. Fails unless all of them ran and hold.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

log=$(mktemp)
POSTHASTE_RAN=$(mktemp)
export POSTHASTE_RAN
trap 'rm -f "$log" "$POSTHASTE_RAN"' EXIT

tests() {
    cargo test --quiet -p posthaste-elastic --all-features --test main -- --nocapture "$@"
}
part() {
    local name=$1 demand=$2
    shift 2
    : >"$POSTHASTE_RAN"
    # shellcheck disable=SC2086 # The demand is a list of words.
    if tests "$@" >"$log" 2>&1 && scripts/ran.sh "$POSTHASTE_RAN" $demand >>"$log"; then
        echo "two-phase: $name holds: $(grep -E '^test result' "$log" | sed 's/^test result: ok. \([0-9]* passed\).*; finished in \(.*\)/\1 in \2/')"
    else
        cat "$log"
        echo "two-phase: $name does NOT hold"
        return 1
    fi
}

part "the model" "model" model:: --include-ignored
part "schedules" "two-phase-schedules" two_phase::schedules
part "the real server" "opensearch two-phase" two_phase:: --skip schedules
