#!/usr/bin/env bash
# run_threads.sh BUILD - the unit tests that use threads or shared memory, under ThreadSanitizer.
set -euo pipefail
supp=$(cd "$(dirname "$0")" && pwd)/tsan.supp
cd "$1"
# A failing group ends with _exit while its threads run: that is no leak.
TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:report_thread_leaks=0:suppressions=$supp" ctest --output-on-failure --no-tests=error \
    -R 'test_queue|test_log|test_metrics|test_thread_pool|test_comm|test_group|test_step_ring|test_engine|test_kv_events|test_worker_'
