#!/bin/sh
# Runs the server of a board under an emulated armv7l (qemu-user) with Debian's Python and NumPy, and a
# client of this machine against it; then a model's file from here, on the interpreter there. Needs a
# Debian with apt and dpkg, qemu-arm (package qemu-user), and a python3 that has vtaops, uv and pip; downloads about
# 25 MB from Debian. 30 s.
#
#     tests/board/armv7/run.sh [FOLDER]         # default: a new temporary folder
#
# Exit code 75 says that something to run it with is missing or could not be downloaded.
#
# The package `pynq` is a stub (pynq.py beside this file): memory and a done flag, no accelerator. So
# this shows that the server installs and works on such a machine, not that VTA does.
set -eu
missing() {
    echo "tests/board/armv7/run.sh: $1"
    exit 75
}
for tool in apt-get dpkg qemu-arm; do
    command -v $tool > /dev/null || missing "there is no $tool"
done
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"
mkdir -p apt/lists/partial apt/cache/archives/partial armhf site dist
touch apt/status
apt="apt-get -q -o Dir::State=$PWD/apt -o Dir::State::lists=$PWD/apt/lists -o Dir::Cache=$PWD/apt/cache
     -o Dir::State::status=$PWD/apt/status -o APT::Architecture=armhf -o APT::Architectures=armhf
     -o Debug::NoLocking=1"
$apt update || true  # other sources of this machine may lack armhf
$apt install -y --no-install-recommends -d python3 python3-numpy libc6 ||
    missing "Debian's armhf packages could not be downloaded"
for file in apt/cache/archives/*.deb; do dpkg -x "$file" armhf; done
python3 -m uv build -q --wheel --build-constraints "$here/../../../.ci/build.txt" --require-hashes -o dist \
    -C wheel.cmake=false -C wheel.py-api=py3 -C wheel.platlib=false "$here/../../.."
lib=$PWD/armhf/usr/lib/arm-linux-gnueabihf
python=$(ls armhf/usr/bin/python3.* | head -n 1)
debian=$PWD/armhf/usr/lib/python3/dist-packages
cat > emulated << END
#!/bin/sh
export PYTHONHOME=$PWD/armhf/usr PYTHONUNBUFFERED=1 PYTHONPATH=$PWD/site:$debian
exec qemu-arm -L armhf -E LD_LIBRARY_PATH=$lib/blas:$lib/lapack:$lib $python "\$@"
END
chmod +x emulated
# As a board that has no network: what else than NumPy the package asked for could not be found.
cp -r "$(python3 -c 'import pip; print(pip.__path__[0])')" site
./emulated -m pip install -q --no-index --no-compile --root-user-action ignore --prefix prefix \
    dist/vtaops-*-py3-none-any.whl
cp -r prefix/*/lib/python3*/*-packages/* prefix/lib/python3*/*-packages/* site 2> /dev/null || true
cp "$here/pynq.py" site
: > server.log # there before it is read
./emulated -m vtaops.board serve --port 0 >> server.log 2>&1 &
server=$!
trap 'kill $server' EXIT
until grep -q serving server.log; do kill -0 $server; sleep 0.2; done
PYTHONPATH=$here/../../.. python3 "$here/client.py" "$(grep -o 'pynq://.*' server.log)"
PYTHONPATH=$here/../../.. python3 "$here/model.py" write .
./emulated "$here/model.py" run .
