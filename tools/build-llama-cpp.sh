#!/usr/bin/env bash
# Builds llama.cpp, the peer that CPU speed is measured against, from the source inside its Python binding's sdist.
# Usage: tools/build-llama-cpp.sh [folder]   (default .peers; 10 to 40 minutes on 2 cores; needs cmake, ninja, g++, pip)
set -euo pipefail
mkdir -p "${1:-.peers}"
cd "${1:-.peers}"
dir=$PWD
python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python llama-cpp-python==0.3.36
tar xf llama_cpp_python-0.3.36.tar.gz
cmake -S llama_cpp_python-0.3.36/vendor/llama.cpp -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_MTMD=OFF -DLLAMA_BUILD_UI=OFF >cmake.log
ninja -C build llama-server llama-bench llama-batched-bench
mkdir -p bin
ln -sf "$dir"/build/bin/* bin/
