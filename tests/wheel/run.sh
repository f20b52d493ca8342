#!/bin/sh
# Builds the wheel and installs it in an environment of its own, where no compiler can be found; there the
# first result of the README is computed and compared with NumPy's. For the machine at hand; 40 s, most of
# it for installing TVM. All else that is installed comes by the hashes of .ci/, which needs uv.
#
#     tests/wheel/run.sh [FOLDER]         # default: a new temporary folder; wheel/ in it holds the wheel
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
python3 -m uv build -q --wheel --build-constraints "$here/../../.ci/build.txt" --require-hashes \
    -o "$folder/wheel" "$here/../.."
python3 -m zipfile -l "$folder"/wheel/vtaops-*.whl | grep -q 'dist-info/sboms/vtaops.cdx.json'
python3 -m venv "$folder/venv"
cd "$folder"
alone() { PATH="$folder/venv/bin" "$@"; }
alone python -m pip install -q --only-binary :all: --require-hashes -r "$here/../../.ci/newest.txt"
alone python -m pip install -q --no-deps wheel/vtaops-*-abi3-*.whl
alone python -I "$here/first_result.py"
alone vtaops run conv2d --layer resnet18.C8 > report.txt
grep -q gemm_counter report.txt
echo "$(ls wheel): the first result of the README, without a compiler"
