#!/usr/bin/env bash
# Runs every broken variant of the store against the stress and, where it has one, against its own
# scenario, one line each; fails if neither notices it. POSTHASTE_MUTANTS=text runs those whose name
# contains it, POSTHASTE_MUTANTS_PG=18 runs them on that server.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.tools/bin:$PATH:$HOME/.cargo/bin"
exec </dev/null
exec cargo nextest run --workspace --all-features --cargo-quiet --profile mutants \
    --run-ignored only --no-capture "$@"
