#!/usr/bin/env bash
# lint.sh BUILD JOBS - clang-tidy (.clang-tidy) over every file of the programs.
set -euo pipefail
git ls-files 'proto/*.c' 'router/*.c' 'worker/*.c' 'kernels/*.c' 'deploy/*.c' |
    grep -v '^kernels/cuda/' | xargs -P "$2" -n 4 clang-tidy -p "$1" --quiet --warnings-as-errors='*'
