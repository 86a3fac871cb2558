# shellcheck shell=bash
# What checks the files for operators: sourced by scripts/setup.sh.

# --- promtool, which checks the rules and the metrics for Prometheus ------------------------------

has_promtool() { command -v promtool >/dev/null; }
packages_for_promtool() { packages+=(prometheus); }
install_promtool() { :; }
missing_promtool() { missing+=("promtool (Debian: prometheus)"); }

# --- systemd-analyze, which checks the unit -------------------------------------------------------

has_systemd_analyze() { command -v systemd-analyze >/dev/null; }
packages_for_systemd_analyze() { packages+=(systemd); }
install_systemd_analyze() { :; }
missing_systemd_analyze() { missing+=("systemd-analyze (Debian: systemd)"); }

# --- buildah and mmdebstrap, which build a container without a daemon and without an image from
# elsewhere

has_buildah() { command -v buildah >/dev/null && command -v mmdebstrap >/dev/null; }
packages_for_buildah() { packages+=(buildah mmdebstrap); }
install_buildah() { :; }
missing_buildah() { missing+=("buildah and mmdebstrap (Debian: buildah mmdebstrap)"); }
