#!/bin/sh
# Builds the wheel for aarch64 on another machine with Debian's cross compiler, installs it with the wheels that
# TVM and NumPy publish for aarch64, and computes the first result of the README with an emulated Python
# (qemu-user), where no compiler can be found. Not part of CI: three minutes, half a gigabyte of disk.
#
#     tests/wheel/aarch64.sh [FOLDER]         # default: a new temporary folder; wheel/ in it holds the wheel
#
# Exit code 75 says that something to run it with is missing or could not be downloaded.
set -eu
missing() {
    echo "tests/wheel/aarch64.sh: $1"
    exit 75
}
for pair in apt-get=apt dpkg=dpkg aarch64-linux-gnu-g++=g++-aarch64-linux-gnu qemu-aarch64=qemu-user; do
    command -v "${pair%%=*}" > /dev/null || missing "there is no ${pair%%=*} (Debian package ${pair#*=})"
done
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"

# The wheel. The variable names the platform for which it is, in place of this machine's.
python3 -m venv tools
tools/bin/pip install -q "scikit-build-core>=0.10" "nanobind>=3.1" "cmake<4" ninja
cat > toolchain.cmake << END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
END
PATH=$PWD/tools/bin:$PATH CMAKE_TOOLCHAIN_FILE=$PWD/toolchain.cmake _PYTHON_HOST_PLATFORM=linux-aarch64 \
    tools/bin/pip wheel -q "$here/../.." --no-deps --no-build-isolation -w wheel

# A Python for aarch64 with its libraries, unpacked here.
mkdir -p apt/lists/partial apt/cache/archives/partial arm64
touch apt/status
apt="apt-get -q -o Dir::State=$PWD/apt -o Dir::State::lists=$PWD/apt/lists -o Dir::Cache=$PWD/apt/cache
     -o Dir::State::status=$PWD/apt/status -o APT::Architecture=arm64 -o APT::Architectures=arm64
     -o Debug::NoLocking=1"
$apt update || true  # other sources of this machine may lack arm64
$apt install -y --no-install-recommends -d python3 libc6 libstdc++6 ||
    missing "Debian's arm64 packages could not be downloaded"
for file in apt/cache/archives/*.deb; do dpkg -x "$file" arm64; done
python=$(ls arm64/usr/bin/python3.* | head -n 1)

# What the wheel depends on, for that Python.
platforms=$(for glibc in 17 24 26 27 28 31 34; do printf ' --platform manylinux_2_%s_aarch64' $glibc; done)
tools/bin/pip install -q --target site --only-binary :all: --python-version "${python##*python}" \
    --platform linux_aarch64 --platform manylinux2014_aarch64 $platforms wheel/vtaops-*-linux_aarch64.whl

cat > emulated << END
#!/bin/sh
export PYTHONHOME=$PWD/arm64/usr PYTHONPATH=$PWD/site PATH=$PWD/arm64/usr/bin
exec $(command -v qemu-aarch64) -L $PWD/arm64 $PWD/$python "\$@"
END
chmod +x emulated
./emulated -c 'import platform; print(platform.machine(), platform.python_version())'
./emulated "$here/first_result.py"
./emulated -m vtaops run conv2d --layer resnet18.C8 > report.txt
grep -q gemm_counter report.txt
echo "$(ls wheel): the first result of the README, on an emulated aarch64"
