#!/usr/bin/env bash
# Compiles each published crate by itself with none of its features, with its default features, and
# with each feature alone: in the workspace another crate may turn on what this one forgot to ask
# for. Arguments name features; "none" and "default" are two of them. Features that exist for
# others to need are no use alone.
set -euo pipefail
cd "$(dirname "$0")/.."

features() {
  sed -n '/^\[features\]/,/^\[/s/^\([a-z-]*\) = .*/\1/p' "crates/$1/Cargo.toml" |
      grep -vx 'amqp\|redis\|default' || true
}

for manifest in crates/*/Cargo.toml; do
  crate=$(basename "$(dirname "$manifest")")
  for feature in none default $(features "$crate"); do
    [ $# -eq 0 ] || [[ " $* " == *" $feature "* ]] || continue
    case $feature in
      none) flags=(--no-default-features) ;;
      default) flags=() ;;
      *) flags=(--no-default-features --features "$feature") ;;
    esac
    echo "features: $crate $feature"
    cargo clippy --quiet -p "$crate" "${flags[@]}" -- -D warnings
  done
done
