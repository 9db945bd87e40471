#!/usr/bin/env bash
# What a machine needs before our packages can run, one step per call:  setup.sh python FOLDER | java FOLDER | browser
# `python` makes the virtualenv FOLDER with a Python >= 3.11; `java` sees to a Java 17 or 21, asked through FOLDER's Python;
# `browser` to a Chromium for the test that follows the tutorial in Dagster's UI, which fails if there is none.
# Where the system's package manager is needed and may be used (root, or sudo without a password) it is; else this says
# what to install and ends with 1.
set -eu

say() { printf '%s\n' "$*" >&2; }

# Runs apt-get as root; fails where that is not possible.
apt() {
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" = 0 ]; then
        DEBIAN_FRONTEND=noninteractive apt-get "$@" >&2
    else
        sudo -n true 2>/dev/null && sudo -n env DEBIAN_FRONTEND=noninteractive apt-get "$@" >&2
    fi
}

apt_install() { apt install -y --no-install-recommends "$@"; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local name
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if command -v "$name" >/dev/null && new_enough "$name"; then
            printf '%s\n' "$name"
            return
        fi
    done
    say "Python 3.11 or newer was not found (Debian 12 and later, Ubuntu 24.04 and later: apt-get install python3 python3-venv)."
    say "If it is installed under another name, run: make PYTHON=/path/to/python3.12 ..."
    return 1
}

make_virtualenv() {
    local python version
    python=$(find_python)
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        say "Python $version lacks its venv module; installing it."
        if ! { apt update && apt_install "python$version-venv"; }; then
            say "It could not be installed. As root: apt-get install python$version-venv"
            return 1
        fi
    fi
    "$python" -m venv "$1"
}

find_java() { "$1/bin/python" -m velo_dagster.engine.java; }

see_to_java() {
    find_java "$1" >/dev/null 2>&1 && return
    if [ -z "${JAVA_HOME:-}" ] && command -v apt-get >/dev/null; then
        say "There is no Java 17 or 21; installing one."
        # Debian 12 has 17, Debian 13 has 21.
        if apt update && { apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless; }; then :; else
            say "It could not be installed from here (not root, no sudo without a password, or no such package)."
        fi
    fi
    find_java "$1" >/dev/null
}

see_to_browser() {
    local name
    for name in chromium chromium-browser google-chrome; do
        command -v "$name" >/dev/null && return
    done
    say "There is no Chromium; installing one for the test of the tutorial in Dagster's UI."
    if apt update && apt_install chromium fonts-dejavu-core; then :; else
        say "It could not be installed from here, so that test will fail. As root: apt-get install chromium fonts-dejavu-core"
    fi
}

case "${1:-} ${2:+folder}" in
    "python folder") make_virtualenv "$2" ;;
    "java folder") see_to_java "$2" ;;
    "browser ") see_to_browser ;;
    *) sed -n 2,6p "$0" >&2; exit 2 ;;
esac
