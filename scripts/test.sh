#!/usr/bin/env bash
# Runs the tests, then says in one line what really ran. Arguments go to cargo test.
# POSTHASTE_DEMAND names the parts that must have run, such as "pg15 pg18 kills=20".
set -euo pipefail
cd "$(dirname "$0")/.."

POSTHASTE_RAN=$(mktemp)
export POSTHASTE_RAN
trap 'rm -f "$POSTHASTE_RAN"' EXIT

# One test more than there are cores: some of them only wait for time to pass.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(getconf _NPROCESSORS_ONLN) + 1))}

# The servers of tests create and remove files by the thousand, which costs a disk's file system more
# than the tests themselves: they live in memory where 8 GiB of it are free, and may be used to run
# programs.
free() { awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo; }
if [ -z "${TMPDIR:-}" ] && findmnt -no OPTIONS /dev/shm 2>/dev/null | grep -vq noexec &&
    [ "$(df --output=avail -B1G /dev/shm | tail -1)" -ge 8 ] && [ "$(free)" -ge 8 ]; then
    export TMPDIR=/dev/shm
fi

status=0
cargo test --workspace --all-features --no-fail-fast "$@" </dev/null || status=$?
# shellcheck disable=SC2086 # The demand is a list of words.
scripts/ran.sh "$POSTHASTE_RAN" ${POSTHASTE_DEMAND:-} || status=$?
exit "$status"
