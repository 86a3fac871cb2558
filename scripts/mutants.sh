#!/usr/bin/env bash
# Runs every broken variant of the store against the stress and, where it has one, against its own
# scenario, one line each; fails if neither notices it. POSTHASTE_MUTANTS=text runs those whose name
# contains it, POSTHASTE_MUTANTS_PG=18 runs them on that server.
set -euo pipefail
cd "$(dirname "$0")/.."
exec cargo test --quiet -p posthaste --all-features --test main mutants::every_mutant_is_killed -- \
    --ignored --exact --nocapture "$@"
