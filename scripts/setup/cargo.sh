# shellcheck shell=bash
# cargo-nextest, and programs that cargo installs: sourced by scripts/setup.sh.

# --- cargo-nextest, which runs the tests ----------------------------------------------------------

has_nextest() { [ -x "$tools/bin/cargo-nextest" ] || command -v cargo-nextest >/dev/null; }
packages_for_nextest() { packages_for_pg18; }
install_nextest() { install_built cargo-nextest "$nextest_version"; }
missing_nextest() { missing+=("cargo-nextest (cargo install cargo-nextest --locked)"); }

# --- cargo-deny, which only .ci/run needs, and mdBook ---------------------------------------------

has_cargo_deny() { [ -x "$tools/bin/cargo-deny" ] || command -v cargo-deny >/dev/null; }
packages_for_cargo_deny() { packages_for_pg18; }
install_cargo_deny() { install_built cargo-deny "$deny_version"; }
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

# PyPI has it built for the usual machines.
install_built() {
    local name=$1 version=$2 place=$tools/$1
    if venv_with "$place" "astral-dev-toolchain-$name==$version"; then
        mkdir -p "$tools/bin" && ln -sf "$place/bin/$name" "$tools/bin/$name"
    else
        install_crate "$name" "$version"
    fi
}

# Unoptimised they compile in a minute instead of many, and are quick enough for this workspace all
# the same.
install_crate() {
    local name=$1 version=$2
    shift 2
    say "$name $version"
    env -u CARGO_TARGET_DIR cargo install "$name" --version "$version" "$@" --locked --force \
        --debug --quiet --root "$tools" >&2
}
