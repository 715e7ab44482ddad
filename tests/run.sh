#!/usr/bin/env bash
# run.sh - installs what the tests need, builds, runs everything; the last line says
# "N passed, N failed". Stages in order, each can be named alone: tests/run.sh unit e2e
#
#   format  clang-format differs nowhere      build   gcc, Release, -Werror, into build/
#   tidy    house rules (tests/tidy)          clang   clang, -Werror, ASan + UBSan, into build-asan/
#   unit    unit tests under ASan + UBSan     threads unit tests with threads under TSan
#   contract  every op on every backend       golden e2e  Release build
#   emulated  the avx512 and amx families without such a processor (tests/emulate), Release build
#   sim     eviction on whole traces, 10^7 operations of the block pool, 4500 schedules (Release)
#   lint    clang-tidy                        fuzz    each fuzzer, to FUZZ_SECONDS (default 60)
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/common.sh

STAGES_ALL="format build tidy clang unit sim contract emulated golden e2e threads fuzz lint"
STAGES=${*:-$STAGES_ALL}
LOGS=$PWD/build/logs
JOBS=${JOBS:-$(nproc)}
FUZZ_SECONDS=${FUZZ_SECONDS:-60}
passed=0
failed=0
skipped=0
mkdir -p "$LOGS"

wanted() { case " $STAGES " in *" $1 "*) ;; *) return 1 ;; esac; }

count() { # count NAME STATUS: one check that is not a ctest
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        say "  FAILED: $1"
    fi
}

build_tree() { # build_tree FOLDER TEXT CMAKE-ARGS... [TARGETS: what to build, default all]
    local folder=$1 text=$2
    shift 2
    run_step "$text" "$LOGS/$folder.log" env TARGETS="${TARGETS:-}" bash -c '
        cmake -S . -B "$1" -G Ninja -DWERROR=ON "${@:3}" && ninja -C "$1" -j "$2" $TARGETS' \
        _ "$folder" "$JOBS" "$@"
}

# run_ctest FOLDER LABEL [CTEST-ARGS]: counts what ctest counted, shows what failed and was skipped.
run_ctest() {
    local folder=$1 label=$2 log="$LOGS/ctest-$1-$2.log" line total bad skip
    shift 2
    say "== $label tests ($folder)"
    (cd "$folder" && ctest -L "^$label\$" --output-on-failure --no-tests=ignore "$@") >"$log" 2>&1 || true
    grep -E '(Passed|Failed|Skipped|Timeout|Exception|Not Run)' "$log" | grep -E '^ *[0-9]+/' >&2 || true
    grep -hi 'skipped:' "$log" | sort -u >&2 || true
    total=$(grep -cE '^ *[0-9]+/[0-9]+ Test' "$log" || true)
    skip=$(grep -cE '^ *[0-9]+/[0-9]+ Test.*\*\*\*Skipped' "$log" || true)
    bad=$(grep -E '^ *[0-9]+/[0-9]+ Test' "$log" | grep -vcE 'Passed|\*\*\*Skipped' || true)
    if [ "$total" = 0 ]; then # no build folder, no ctest, no test of the label
        tail -n 20 "$log" >&2
        count "$label tests ($folder): none ran" 1
    fi
    if [ "$bad" -gt 0 ]; then
        grep -vE '^ *[0-9]+/|^ *Start ' "$log" | tail -n 120 >&2
    fi
    passed=$((passed + total - bad - skip))
    failed=$((failed + bad))
    skipped=$((skipped + skip))
}

say "== packages"
# shellcheck disable=SC2086 # lists of words
install_packages "$LOGS" $PACKAGES_BUILD $PACKAGES_TEST
fetch_model "$LOGS"
gemma=""
if wanted golden || wanted e2e; then # beside the build; without it two tests skip, and say so
    (fetch_gemma "$LOGS") >"$LOGS/gemma.log" 2>&1 &
    gemma=$!
fi

if wanted format; then
    say "== format"
    git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror >"$LOGS/format.log" 2>&1 &&
        count format 0 || { head -n 20 "$LOGS/format.log" >&2; count "format (clang-format -i)" 1; }
fi
if wanted build || wanted sim || wanted contract || wanted emulated || wanted golden || wanted e2e; then
    say "== build"
    build_tree build "gcc, Release" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=gcc \
        "-DTESTS_LINKED=contract;emulated;golden;e2e;sim" &&
        count build 0 || count build 1
fi
if wanted tidy; then
    say "== tidy"
    python3 tests/tidy/tidy.py >"$LOGS/tidy.log" 2>&1 && count tidy 0 ||
        { cat "$LOGS/tidy.log" >&2; count tidy 1; }
fi
if wanted clang || wanted unit; then
    build_tree build-asan "clang, ASan + UBSan" -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_C_FLAGS_DEBUG=-O1 -DCMAKE_C_COMPILER=clang -DSANITIZE=address,undefined \
        -DWITH_FUZZERS=ON "-DTESTS_LINKED=unit;contract" && count clang 0 || count clang 1
fi
wanted unit && run_ctest build-asan unit -j "$JOBS"
wanted sim && run_ctest build sim -j "$JOBS"
if wanted contract; then
    [ -d build-asan ] && run_ctest build-asan contract -j "$JOBS"
    run_ctest build contract
fi
wanted emulated && run_ctest build emulated -j "$JOBS"
[ -z "$gemma" ] || wait "$gemma" || tail -n 3 "$LOGS/gemma.log" >&2
wanted golden && run_ctest build golden
wanted e2e && run_ctest build e2e -j "$JOBS" # most of them alone: tests/CMakeLists.txt
if wanted threads; then
    TARGETS=$(bash tests/run_threads.sh build-tsan targets | tr '\n' ' ') \
        build_tree build-tsan "gcc, TSan" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O1 \
        -DCMAKE_C_COMPILER=gcc -DSANITIZE=thread && count tsan 0 || count tsan 1
    # The address-space randomisation of new kernels is more than TSan's shadow map can take.
    setarch -R true 2>/dev/null && tsan_run="setarch -R" || tsan_run=""
    run_threads() { $tsan_run bash tests/run_threads.sh "$1"; }
    run_threads build-tsan >"$LOGS/threads.log" 2>&1 && count threads 0 ||
        { tail -n 60 "$LOGS/threads.log" >&2; count threads 1; }
fi
if wanted fuzz; then
    say "== fuzz (up to $FUZZ_SECONDS s each)"
    build_tree build-asan "fuzzers" >/dev/null -DWITH_FUZZERS=ON || count "fuzzer build" 1
    while read -r name status; do
        count "$name" "$status"
    done < <(FUZZ_SECONDS=$FUZZ_SECONDS JOBS=$JOBS bash tests/fuzz/run.sh build-asan "$LOGS")
fi
if wanted lint; then
    say "== clang-tidy"
    run_step "clang-tidy" "$LOGS/lint.log" bash tests/tidy/lint.sh build-asan "$JOBS" &&
        count lint 0 || count lint 1
fi

[ "$skipped" -gt 0 ] && say "$skipped skipped (named above)"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
