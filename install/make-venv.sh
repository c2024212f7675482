#!/bin/sh
# make-venv.sh FOLDER: make a virtual environment there with a Python that Cube Studio runs on.
# PYTHON=/path/to/python chooses one; else the first of python3, python3.13, python3.12, python3.11 that fits.
set -eu
folder=$1

remedy() {
    {
        echo "Remedy, then say make again:"
        echo "  Debian, Ubuntu:  apt install python3 python3-venv"
        echo "  Fedora, RHEL:    dnf install python3.12"
        echo "  macOS:           brew install python@3.12"
        echo "  or name one:     make run PYTHON=/path/to/python3.12"
    } >&2
    exit 1
}

chosen='' seen=''
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    seen="$seen $candidate=$version"
    case $version in
        3.11 | 3.12 | 3.13)
            chosen=$candidate
            break
            ;;
    esac
done

if [ -z "$chosen" ]; then
    if [ -n "$seen" ]; then
        echo "Cube Studio needs Python 3.11, 3.12 or 3.13; found only:$seen" >&2
    else
        echo "Cube Studio needs Python 3.11, 3.12 or 3.13; none was found (tried: ${PYTHON:-python3, python3.13, python3.12, python3.11})" >&2
    fi
    remedy
fi

if ! "$chosen" -c 'import venv, ensurepip, ssl' 2>/dev/null; then
    echo "$chosen ($version) lacks one of its own modules: venv, ensurepip or ssl" >&2
    remedy
fi

# A copied or moved checkout, or a Python that has gone, leaves an environment that does not work: it is made anew.
clear=''
if [ -e "$folder/.made-for" ] || { [ -e "$folder" ] && ! "$folder/bin/python" -c 'import pip' 2>/dev/null; }; then
    clear=--clear
fi
echo "Setting up: $folder with $chosen ($version) ..."
exec "$chosen" -m venv $clear "$folder"
