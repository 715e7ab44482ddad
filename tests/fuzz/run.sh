#!/usr/bin/env bash
# run.sh BUILD LOGS - every fuzzer in BUILD, JOBS at a time; a line "name status" each. Those of what
# strangers send or hand us take FUZZ_SECONDS, the others a fifth. A corpus is kept in BUILD/corpus; a
# crash input stays in BUILD/crashes and is named.
set -u
build=$1 logs=$2
one() {
    name=$(basename "$1")
    [[ $name =~ ^($strangers)$ ]] || FUZZ_SECONDS=$(((FUZZ_SECONDS + 4) / 5))
    mkdir -p "$2/corpus/$name" "$2/crashes"
    seeds="$(dirname "$0")/seeds/$name"
    "$1" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$2/crashes/$name-" "$2/corpus/$name" \
        $([ -d "$seeds" ] && echo "$seeds") >"$3/$name.log" 2>&1
    status=$?
    [ $status = 0 ] || tail -n 40 "$3/$name.log" >&2
    echo "$name $status"
}
export -f one
export FUZZ_SECONDS=${FUZZ_SECONDS:-60}
export strangers='fuzz_http|fuzz_chat_request|fuzz_jinja|fuzz_tokenizer_json|fuzz_gguf'
all=$(find "$build" -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x | sort)
# The long ones first, so that none is left to run alone at the end.
{ grep -E "/($strangers)\$" <<<"$all"; grep -vE "/($strangers)\$" <<<"$all"; } |
    xargs -P "${JOBS:-2}" -I{} bash -c 'one "$@"' "$0" {} "$build" "$logs"
