#!/usr/bin/env bash
# Runs what the two-phase commit is believed for, and prints one line for each part: the model, the
# schedules, the real server, transfers under fire. Arguments name parts (model schedules server
# transfers). POSTHASTE_SCHEDULES says how many schedules. Fails unless all of them ran and hold.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

export POSTHASTE_SCHEDULES=${POSTHASTE_SCHEDULES:-10000}
log=$(mktemp)
POSTHASTE_RAN=$(mktemp)
export POSTHASTE_RAN
trap 'rm -f "$log" "$POSTHASTE_RAN"' EXIT

# The model may have 4 GiB; compilers need no bound.
kibibytes=$((4 << 20))
# Many schedules are worth the optimising compiler.
profile=()
[ "$POSTHASTE_SCHEDULES" -le 100000 ] || profile=(--release)

tests() {
    cargo test --quiet -p posthaste-elastic --all-features "${profile[@]}" --test main -- \
        --nocapture "$@"
}
bounded_tests() {
    cargo test --quiet -p posthaste-elastic --all-features --test main --no-run
    (ulimit -v "$kibibytes" && tests "$@")
}
transfers() {
    cargo run --quiet -p posthaste-torture -- transfers
}

# part NAME DEMAND COMMAND…
part() {
    local name=$1 demand=$2 begun=$SECONDS
    shift 2
    : >"$POSTHASTE_RAN"
    # shellcheck disable=SC2086 # The demand is a list of words.
    if "$@" >"$log" 2>&1 && scripts/ran.sh "$POSTHASTE_RAN" $demand >>"$log"; then
        local tests
        tests=$(grep -E '^(test result|transfers):' "$log" | tail -1 |
            sed 's/^test result: ok. \([0-9]* passed\).*; finished in \(.*\)/\1 in \2/')
        echo "two-phase: $name holds: $tests; $((SECONDS - begun)) s in all"
    else
        cat "$log"
        echo "two-phase: $name does NOT hold"
        return 1
    fi
}

[ $# -gt 0 ] || set -- model schedules server transfers
# Each part has its line, whatever became of those before.
failed=0
for one in "$@"; do
    case $one in
    model) part "the model" model bounded_tests model:: --include-ignored || failed=1 ;;
    schedules)
        part schedules "two-phase-schedules=$POSTHASTE_SCHEDULES" tests two_phase::schedules ||
            failed=1
        ;;
    # Without the fake that answers as the server does, call by call, the schedules would show
    # nothing.
    server)
        part "the real server" "opensearch two-phase agreed=1500" \
            tests agreement:: conformance:: two_phase:: --skip schedules || failed=1
        ;;
    transfers)
        part "transfers under fire" "opensearch two-phase-transfers=10000" transfers || failed=1
        ;;
    *) echo "two-phase: there is no part $one" >&2 && exit 2 ;;
    esac
done
exit "$failed"
