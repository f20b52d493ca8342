#!/bin/sh
# Installs the server of a board, as root on the board; recipe.sh made this folder. With ROOT=FOLDER it only
# unpacks everything there, for an emulator, and PYTHON is that of this machine.
set -eu
cd "$(dirname "$0")"
root=${ROOT:-}
sha256sum -c --quiet SHA256SUMS
if [ -n "$root" ]; then
    for file in debs/*.deb; do dpkg -x "$file" "$root"; done
else
    dpkg -i --skip-same-version --refuse-downgrade debs/*.deb
fi
mkdir -p "$root/opt" "$root/etc/vtaops" "$root/etc/systemd/system"
rm -rf "$root/opt/vtaops" # of an earlier version
"${PYTHON:-python3}" -m zipfile -e vtaops-*.whl "$root/opt/vtaops"
install -m 600 secret "$root/etc/vtaops/secret"
install -m 644 vtaops.service "$root/etc/systemd/system/vtaops.service"
if [ -z "$root" ]; then
    systemctl daemon-reload
    systemctl enable vtaops
    echo "installed: do what boot.txt says, then restart the board"
fi
