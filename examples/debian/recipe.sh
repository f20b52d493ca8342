#!/bin/sh
# A server of a Zynq board under Debian 12, without PYNQ: everything in one folder, by its checksums.
#
#     examples/debian/recipe.sh ARCH FOLDER WHEEL SECRET    # on a PC; ARCH is armhf (Zynq-7000) or arm64
#     sh FOLDER/install.sh                                  # on the board, as root, without a network
#     examples/debian/recipe.sh lock ARCH                   # renews ARCH.txt from Debian's signed lists
#
# ARCH.txt names Debian's packages, each with its SHA-256. What Debian has replaced since comes from
# its archive of all versions. CONFIG and MEMORY (address and bytes that Linux is told to leave) are
# variables. docs/board.md has the whole way.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mirrors="http://deb.debian.org https://snapshot.debian.org/archive"
archived=20261128T000000Z

fail() {
    echo "recipe.sh: $1" >&2
    exit "${2:-1}"
}

lock() {
    work=$(mktemp -d)
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    : > "$work/status"
    apt="apt-get -q -o Dir::State=$work -o Dir::State::lists=$work/lists -o Dir::Cache=$work/cache
         -o Dir::State::status=$work/status -o APT::Architecture=$1 -o APT::Architectures=$1
         -o Debug::NoLocking=1"
    wanted="install -y --no-install-recommends python3 python3-numpy libc6"
    $apt update > "$work/log" 2>&1 || true # other sources of this machine may lack the architecture
    $apt $wanted --print-uris > "$work/uris"
    $apt $wanted -d >> "$work/log" 2>&1 # apt compares each with the lists that Debian has signed
    sed -n "s|^'[a-z]*://[^/]*/\([^']*\)' \([^ ]*\) .*|\1 \2|p" "$work/uris" | while read -r path file; do
        hash=$(sha256sum "$work/cache/archives/$file" | cut -d ' ' -f 1)
        echo "$hash  $path" | sed 's/%2b/+/g; s/%7e/~/g; s/%3a/:/g'
    done | sort -k 2
    rm -r "$work"
}

# Download a package unless it is there, and compare it with its checksum.
fetch() {
    hash=$1 path=$2 file=debs/${2##*/}
    for mirror in $mirrors; do
        echo "$hash  $file" | sha256sum -c --status 2> /dev/null && return
        place=$path
        [ "$mirror" = "${mirrors%% *}" ] || place=${path%%/*}/$archived/${path#*/}
        curl -sfL --retry 2 --max-time 120 -o "$file" "$mirror/$(echo "$place" | sed 's/+/%2b/g')" || true
    done
    echo "$hash  $file" | sha256sum -c --status || fail "$path: not found with its checksum" 75
}

[ $# -ge 2 ] || fail "see the head of this file: recipe.sh ARCH FOLDER WHEEL SECRET"
if [ "$1" = lock ]; then
    lock "$2"
    exit
fi
[ -f "$here/$1.txt" ] || fail "the architecture is $1; it must be armhf or arm64"
[ $# -eq 4 ] || fail "give ARCH FOLDER WHEEL SECRET"
case ${3##*/} in
    vtaops-*-py3-none-any.whl) ;;
    *) fail "the wheel is $3; it must be vtaops-VERSION-py3-none-any.whl (docs/board.md makes it)" ;;
esac
case $1 in
    armhf) config=${CONFIG:-pynq_ext} memory=${MEMORY:-0x1e000000+0x2000000} ;;
    arm64) config=${CONFIG:-ultra96_512} memory=${MEMORY:-0x70000000+0x10000000} ;;
esac
mkdir -p "$2/debs"
cp "$3" "$2"
cp "$4" "$2/secret"
chmod 600 "$2/secret"
sed "s|CONFIG|$config|; s|MEMORY|$memory|" "$here/vtaops.service" > "$2/vtaops.service"
cp "$here/install.sh" "$2"
cd "$2"
while read -r hash path; do fetch "$hash" "$path"; done < "$here/$1.txt"
sha256sum vtaops-*.whl vtaops.service secret debs/*.deb > SHA256SUMS
limit=$((${memory%%+*} / 1048576))
cat > boot.txt << END
Linux must leave VTA's memory: add to its arguments (bootargs, or append of extlinux.conf)

    mem=${limit}M

and the logic must be programmed before it starts. In U-Boot, with vta.bit on the first partition:

    load mmc 0:1 0x2000000 vta.bit
    fpga loadb 0 0x2000000 \$filesize
END
echo "made $2 for $1: $config, memory $memory; boot.txt says what the boot loader must do"
