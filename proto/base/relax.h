/* relax.h - "I am spinning" for the core, so that its sibling gets on. */
#ifndef REFRAIN_PROTO_BASE_RELAX_H
#define REFRAIN_PROTO_BASE_RELAX_H

#if defined(__x86_64__)
static inline void cpu_relax(void)
{
    __builtin_ia32_pause();
}
#else
static inline void cpu_relax(void)
{
}
#endif

#endif
