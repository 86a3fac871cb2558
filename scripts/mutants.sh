#!/usr/bin/env bash
# Runs every broken variant of the store against the stress or the scenario that must notice it, one line each; fails if one survives or hangs.
# POSTHASTE_MUTANTS=text runs those whose name contains it, POSTHASTE_MUTANTS_PG=18 runs them on that server.
set -euo pipefail
cd "$(dirname "$0")/.."
exec cargo test --quiet -p posthaste --all-features --test main mutants::every_mutant_is_killed -- --ignored --exact --nocapture "$@"
