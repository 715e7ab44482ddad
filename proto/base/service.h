/* service.h - what systemd is told; nothing when it did not start us. Thread: any. */
#ifndef REFRAIN_PROTO_BASE_SERVICE_H
#define REFRAIN_PROTO_BASE_SERVICE_H

#include <stdint.h>

/* "READY=1", "STATUS=...", "WATCHDOG=1", "STOPPING=1"; lines separated by '\n'. */
void service_notify(const char *state);
/* How often WATCHDOG=1 is due (half of what systemd allows); 0: no watchdog. */
uint64_t service_watchdog_ms(void);

#endif
