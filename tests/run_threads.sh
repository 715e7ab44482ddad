#!/usr/bin/env bash
# run_threads.sh BUILD [targets] - the unit tests that use threads or shared memory, under
# ThreadSanitizer. With "targets" it prints what has to be built for them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
names='test_queue|test_log|test_metrics|test_thread_pool|test_comm|test_group|test_step_ring|test_ranks|test_kv_events|test_look|test_worker_process|test_worker_group|test_grammars|test_grammar_checks'

if [ "${2:-}" = targets ]; then
    cd "$here"
    find unit -name 'test_*.c' | grep -E "/($names)\.c$" | sed 's/\.c$//; s|/|_|g'
    echo refrain-worker # test_worker_* start it
    exit
fi
cd "$1"
# A failing group ends with _exit while its threads run: that is no leak.
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:report_thread_leaks=0:suppressions=$here/tsan.supp"
ctest -L '^unit$' --output-on-failure --no-tests=error -R "/($names)\$"
