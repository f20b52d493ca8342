#!/bin/sh
# The recipe of examples/debian for a Zynq-7000 and an UltraScale+, unpacked beside an emulator (qemu-user): the command
# of its service serves there, with Debian's own Python and NumPy, and a client of this machine logs in and fills its
# memory. Files stand in for /dev/mem and /proc/iomem, so nothing is computed. Needs curl, dpkg, qemu-arm and
# qemu-aarch64 (package qemu-user), and a python3 that has vtaops; downloads 50 MB from Debian. 40 s.
#
#     tests/board/debian/run.sh [ARCH] ...      # default: armhf arm64
#
# Exit code 75 says that something is missing or could not be downloaded.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../../..
for tool in curl dpkg qemu-arm qemu-aarch64; do
    command -v $tool > /dev/null || {
        echo "tests/board/debian/run.sh: there is no $tool"
        exit 75
    }
done
work=$(mktemp -d)
server=
trap 'kill $server 2> /dev/null || true; rm -rf "$work"' EXIT
cd "$work"
python3 -m uv build -q --wheel --build-constraints "$source/.ci/build.txt" --require-hashes -o dist \
    -C wheel.cmake=false -C wheel.py-api=py3 -C wheel.platlib=false "$source"
python3 -c 'import secrets; print(secrets.token_hex())' > board.secret
chmod 600 board.secret
for arch in ${*:-armhf arm64}; do
    "$source/examples/debian/recipe.sh" "$arch" "$arch" dist/vtaops-*.whl board.secret
    root=$work/root-$arch
    mkdir "$root"
    ROOT=$root PYTHON=python3 sh "$arch/install.sh"
    # What Linux would show of a board with 480 MB for itself, and the memory behind it.
    mkdir -p "$root/dev" "$root/proc"
    printf '00000000-1dffffff : System RAM\n' > "$root/proc/iomem"
    truncate -s 3G "$root/dev/mem"
    case $arch in
        armhf) qemu=qemu-arm ;;
        arm64) qemu=qemu-aarch64 ;;
    esac
    lib=$(echo "$root"/usr/lib/*-linux-*)
    command=$(sed -n 's|^ExecStart=/usr/bin/python3 ||p' "$root/etc/systemd/system/vtaops.service")
    : > "server-$arch.log" # there before it is read
    PYTHONHOME=$root/usr PYTHONPATH=$root/opt/vtaops:$root/usr/lib/python3/dist-packages PYTHONUNBUFFERED=1 \
        $qemu -L "$root" -E "LD_LIBRARY_PATH=$lib/blas:$lib/lapack:$lib" "$root/usr/bin/python3.11" \
        $command --port 0 >> "server-$arch.log" 2>&1 &
    server=$!
    until grep -q serving "server-$arch.log"; do
        kill -0 $server || { cat "server-$arch.log"; exit 1; }
        sleep 0.2
    done
    config=$(echo "$command" | sed 's/.*--config \([^ ]*\).*/\1/')
    port=$(grep -o 'pynq://.*' "server-$arch.log" | sed 's/.*://')
    VTAOPS_BOARD_SECRET_FILE=board.secret python3 "$here/client.py" "pynq://127.0.0.1:$port" "$config" "$root/dev/mem"
    kill $server
done
