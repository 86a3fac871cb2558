#!/usr/bin/env bash
# Runs the tests, then says in one line what really ran.
#
#   scripts/test.sh [--full] [ARGUMENT…]   arguments go to `cargo nextest run`, such as a
#                                          part of a name
#
# What fails is run once more, alone. What passes then is printed last as FLAKY with its first
# output, and up to three of these are no failure. POSTHASTE_DEMAND names the parts that must have
# run. A whole run with --full that passes is kept in docs/reports/tests-full.json.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.tools/bin:$PATH:$HOME/.cargo/bin"
exec </dev/null
# Tests of a terminal start the shell of this variable: here too the one that CI has.
unset SHELL

profile=default
# Of the versions of PostgreSQL a claim is tried on the newest, unless it depends on the version.
export POSTHASTE_TEST_NEWEST=1
if [ "${1:-}" = --full ]; then
    profile=full
    unset POSTHASTE_TEST_NEWEST
    export POSTHASTE_SCHEDULES=${POSTHASTE_SCHEDULES:-10000}
    shift
fi
tests=(--workspace --all-features --cargo-quiet)
target=${CARGO_TARGET_DIR:-target}
# More tests than there are cores: most of them only wait.
threads=${POSTHASTE_TEST_THREADS:-$(($(getconf _NPROCESSORS_ONLN) * 4))}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export POSTHASTE_RAN="$folder/ran"
: >"$POSTHASTE_RAN"

# The servers of tests create and remove files by the thousand, which costs a disk's file system
# more than the tests themselves: they live in memory where 8 GiB of it are free, and may be used to
# run programs.
free() { awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo; }
if [ -z "${TMPDIR:-}" ] && findmnt -no OPTIONS /dev/shm 2>/dev/null | grep -vq noexec &&
    [ "$(df --output=avail -B1G /dev/shm | tail -1)" -ge 8 ] && [ "$(free)" -ge 8 ]; then
    export TMPDIR=/dev/shm
fi

# run LOG THREADS [ARGUMENT…]
run() {
    local log=$1 threads=$2
    shift 2
    "$target/debug/posthaste-test-run" cargo nextest run --cargo-metadata "$folder/packages" \
        --binaries-metadata "$folder/binaries" --profile "$profile" \
        --test-threads "$threads" "$@" 2>&1 | tee "$log"
}

# The failed tests of a run, as "BINARY TEST": its summary names them last.
failed_in() {
    local ends='FAIL|TIMEOUT|ABORT|LEAK-FAIL|SIG[A-Z0-9]+|XFAIL'
    sed -n '/^ *Summary \[/,$p' "$1" |
        sed -nE "s/^ *($ends) \[[^]]*\] (\([^)]*\) )?([^ ]+) ([^ ]+)\$/\3 \4/p" | sort -u
}

# What a test of a run has written, from its line to that of the next test.
said_in() {
    awk -v name="$2" '
        /^ *[A-Z][A-Z0-9-]* \[/ { shown = (index($0, " " name) && $1 != "SLOW" && $1 != "PASS") &&
            !seen++ }
        /^ *Summary \[/ { exit }
        shown' "$1"
}

# What a whole run came to.
keep() {
    local counts
    counts=$(sed -nE \
        's/^ *Summary \[ *([0-9]+)[^]]*\] ([0-9]+) tests run: ([0-9]+) passed.*/\1 \2 \3/p' \
        "$folder/first")
    read -r seconds all passed <<<"$counts"
    {
        printf '{\n  "commit": "%s",\n  "date": "%s",\n' "$commit" "$(date -u +%F)"
        printf '  "seconds": %d,\n  "processors": %d,\n' "$seconds" "$(getconf _NPROCESSORS_ONLN)"
        printf '  "tests": %d,\n  "passed_at_once": %d,\n' "$all" "$passed"
        printf '  "flaky": [%s],\n' \
            "$(printf '"%s"\n' "${flaky[@]}" | sed '/^""$/d' | paste -sd, -)"
        printf '  "ran": "%s"\n}\n' "$(scripts/ran.sh "$POSTHASTE_RAN" | sed -n 's/^ran: //p')"
    } >docs/reports/tests-full.json
}

# Read whole before it begins: whoever edits this file meanwhile changes no run.
main() {
    cargo nextest run "${tests[@]}" --no-run
    # Tests start examples as processes, and run the tests of one.
    cargo build --workspace --all-features --examples --quiet
    cargo test --workspace --all-features --example web --no-run --quiet
    # Both runs take what was built here: neither waits for another cargo.
    cargo metadata --format-version 1 --all-features >"$folder/packages"
    cargo nextest list "${tests[@]}" --list-type binaries-only --message-format json \
        >"$folder/binaries"
    commit=$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
    status=0
    run "$folder/first" "$threads" "$@" || status=$?
    flaky=()
    # nextest ends with 100 where tests failed, and with others where it could not run them.
    if [ "$status" = 100 ]; then
        mapfile -t failed < <(failed_in "$folder/first")
        if [ ${#failed[@]} -gt 0 ] && [ ${#failed[@]} -le 12 ]; then
            echo "== once more, alone: ${#failed[@]} failed"
            filter=
            for one in "${failed[@]}"; do
                filter+="${filter:+ or }(binary_id(=${one% *}) and test(=${one#* }))"
            done
            again=0
            run "$folder/second" 1 --run-ignored all --ignore-default-filter -E "$filter" ||
                again=$?
            if [ "$again" = 0 ] || [ "$again" = 100 ]; then
                mapfile -t flaky < \
                    <(comm -23 <(printf '%s\n' "${failed[@]}") <(failed_in "$folder/second"))
                [ "$again" != 0 ] || [ ${#flaky[@]} -gt 3 ] || status=0
            fi
        fi
    fi
    if [ "$profile" = default ] && [ $# -eq 0 ]; then
        cargo test --workspace --all-features --doc --quiet || status=$?
    fi
    # shellcheck disable=SC2086 # The demand is a list of words.
    scripts/ran.sh "$POSTHASTE_RAN" ${POSTHASTE_DEMAND:-} || status=$?
    for one in "${flaky[@]}"; do
        echo "FLAKY: $one failed once, and passed when it was run again. At first it said:"
        said_in "$folder/first" "${one#* }" | head -n 60
    done
    [ "$status" != 0 ] || [ ${#flaky[@]} -eq 0 ] || echo "passed, with ${#flaky[@]} FLAKY"
    [ "$status$profile$#" != 0full0 ] || keep
    exit "$status"
}

main "$@"
