# shellcheck shell=bash
# The rivals that the bench runs by their own libraries. Sourced by setup.sh.

rivals=$tools/rivals
graphile_sources=lab/bench/rivals/graphile-worker

has_graphile_worker() {
    has_node &&
        cmp -s "$graphile_sources/package-lock.json" "$rivals/graphile-worker/installed"
}
packages_for_graphile_worker() { packages_for_node_examples; }
install_graphile_worker() {
    has_node || return
    local place=$rivals/graphile-worker
    say "the npm packages of $graphile_sources/package-lock.json"
    mkdir -p "$place" && cp "$graphile_sources"/package*.json "$place/" || return
    quietly npm ci --prefix "$place" --ignore-scripts --no-audit --no-fund --loglevel=error ||
        return
    cp "$graphile_sources/package-lock.json" "$place/installed"
}
missing_graphile_worker() { missing+=("graphile-worker (Node.js 18 or newer with npm)"); }
