#!/usr/bin/env bash
# quickstart.sh - from a fresh Debian 12 machine to a served chat model, in one command.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/common.sh

usage() {
    cat <<'TEXT'
usage: deploy/quickstart.sh [--once] [--port N] [--groups N] [--tp N] [-- FLAGS...]

Installs the Debian packages that are missing, builds into build/, gets SmolLM2-135M-Instruct
(89 MiB, once, into ${XDG_CACHE_HOME:-~/.cache}/refrain/models), starts `refrain up`, plays a
four-turn demo chat and goes on serving until Ctrl-C. Run it again: it starts in seconds.

  --once      stop after the demo
  --port N    port of the router (default 8000; 0: any free one)
  --groups N  worker groups (default 2)        --tp N  ranks of a group (default 1)
  -- FLAGS    more flags for `refrain up`
TEXT
}

once=0 port=8000 groups=2 ranks=1
while [ $# -gt 0 ]; do
    case "$1" in
    --once) once=1 ;;
    --port | --groups | --tp)
        [ $# -ge 2 ] || die "$1 needs a number"
        case "$2" in '' | *[!0-9]*) die "$1 needs a number, not '$2'" ;; esac
        [ "$1" = --port ] && [ "$2" -gt 65535 ] && die "--port is at most 65535"
        [ "$1" = --groups ] && { [ "$2" -ge 1 ] && [ "$2" -le 64 ] || die "--groups is 1 to 64"; }
        [ "$1" = --tp ] && { [ "$2" -ge 1 ] && [ "$2" -le 8 ] || die "--tp is 1 to 8"; }
        case "$1" in --port) port=$2 ;; --groups) groups=$2 ;; --tp) ranks=$2 ;; esac
        shift
        ;;
    --help | -h) usage; exit 0 ;;
    --) shift; break ;;
    *) usage >&2; die "no flag '$1'" ;;
    esac
    shift
done

logs=$PWD/build/logs
mkdir -p "$logs"
say "1. packages"
# shellcheck disable=SC2086 # a list of words
install_packages "$logs" $PACKAGES_BUILD
say "2. build"
run_step "configure" "$logs/configure.log" cmake -S . -B build -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=gcc -DWITH_TESTS=OFF ||
    die "the build could not be set up: remove build/ and run this again"
run_step "compile" "$logs/compile.log" ninja -C build ||
    die "the build failed: the log above names the file"
say "3. model"
fetch_model "$logs"
say "4. start"
ready=$(mktemp)
# In a session of its own: a Ctrl-C reaches this script alone, which hands on exactly one signal, so
# that streams may end (a second one would cut them).
setsid build/refrain up --model "$MODEL" --port "$port" --groups "$groups" --tp "$ranks" "$@" >"$ready" &
up=$!
cleanup() {
    trap - EXIT INT TERM
    rm -f "$ready"
    kill -TERM "$up" 2>/dev/null && wait "$up" || true
}
trap cleanup EXIT
trap 'exit 130' INT TERM
for _ in $(seq 1200); do
    grep -q '^ready ' "$ready" && break
    kill -0 "$up" 2>/dev/null || { wait "$up" || true; die "refrain up ended; its words stand above"; }
    sleep 0.05
done
url=$(sed -n 's/^ready //p' "$ready")
[ -n "$url" ] || die "not ready after 60 s"
say "5. four turns"
python3 deploy/demo.py "$url"
[ "$once" = 1 ] && exit 0
cat <<TEXT
Serving on $url (status page there; Ctrl-C stops). Try:

  curl $url/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 32}'

TEXT
wait "$up"
