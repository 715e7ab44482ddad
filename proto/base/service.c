/* service.c - sd_notify, or nothing where the library was not there at build time. */
#include "proto/base/service.h"

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>

void service_notify(const char *state)
{
    (void)sd_notify(0, state);
}

uint64_t service_watchdog_ms(void)
{
    uint64_t usec = 0;
    return sd_watchdog_enabled(0, &usec) > 0 ? usec / 2000 : 0;
}
#else
void service_notify(const char *state)
{
    (void)state;
}

uint64_t service_watchdog_ms(void)
{
    return 0;
}
#endif
