#!/usr/bin/env bash
# run_threads.sh BUILD - the unit tests that use threads or shared memory, under ThreadSanitizer.
set -euo pipefail
cd "$1"
TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1" ctest --output-on-failure --no-tests=error \
    -R 'test_queue|test_log|test_metrics|test_thread_pool|test_comm|test_group|test_step_ring|test_engine|test_worker_process'
