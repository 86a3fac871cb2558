#!/usr/bin/env bash
# Compiles the library, the relay and the sync with none of their features, and with each of them
# alone. Arguments name features. Those that only others need are no use alone.
set -euo pipefail
cd "$(dirname "$0")/.."

features() {
  sed -n '/^\[features\]/,/^\[/s/^\([a-z-]*\) = .*/\1/p' "crates/$1/Cargo.toml" |
      grep -vx 'amqp\|redis\|default'
}

for crate in posthaste posthaste-relay posthaste-sync; do
  mapfile -t all < <(features "$crate")
  for feature in "" "${all[@]}"; do
    [ $# -eq 0 ] || [[ " $* " == *" ${feature:-none} "* ]] || continue
    echo "features: $crate ${feature:-none}"
    cargo clippy --quiet -p "$crate" --no-default-features --features "$feature" -- -D warnings
  done
done
