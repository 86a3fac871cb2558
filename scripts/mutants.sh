#!/usr/bin/env bash
# Runs every broken variant of the store against the stress, one line each; fails if one survives.
set -euo pipefail
cd "$(dirname "$0")/.."
exec cargo test --release -p posthaste --test main mutants -- --ignored --nocapture --test-threads=1 "$@"
