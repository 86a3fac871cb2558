#!/usr/bin/env bash
# Compiles the library with none of its features, and with each of them alone. Arguments name features. Those that only others need are no use alone.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t all < <(sed -n '/^\[features\]/,/^\[/s/^\([a-z-]*\) = .*/\1/p' crates/posthaste/Cargo.toml | grep -vx 'amqp\|redis\|default')
[ $# -gt 0 ] || set -- "" "${all[@]}"
for feature in "$@"; do
  echo "features: ${feature:-none}"
  cargo clippy --quiet -p posthaste --no-default-features --features "$feature" -- -D warnings
done
