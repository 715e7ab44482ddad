/* adapter_use.h - a loaded adapter as a sequence holds it: which slot, and that somebody uses it.
 *
 * Who takes requests enters, whoever frees the sequence leaves; a slot is filled anew only when
 * nobody is in it. Thread: any. */
#ifndef REFRAIN_WORKER_LORA_ADAPTER_USE_H
#define REFRAIN_WORKER_LORA_ADAPTER_USE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/assert.h"

struct adapter_use {
    uint32_t slot;
    uint32_t serial; /* of this load, from 1 on: names the adapter after it has left its slot */
    _Atomic uint32_t users;
};

static inline struct adapter_use *adapter_enter(struct adapter_use *use)
{
    (void)atomic_fetch_add_explicit(&use->users, 1, memory_order_relaxed);
    return use;
}

static inline void adapter_leave(struct adapter_use *use) /* NULL is fine */
{
    if (use == NULL)
        return;
    uint32_t users = atomic_fetch_sub_explicit(&use->users, 1, memory_order_release);
    ASSERT(users > 0);
}

/* As struct step has it: the slot + 1, 0: the base model. */
static inline uint32_t adapter_slot(const struct adapter_use *use)
{
    return use != NULL ? use->slot + 1 : 0;
}

/* Whose blocks a sequence makes; 0: the base model's. */
static inline uint32_t adapter_serial(const struct adapter_use *use)
{
    return use != NULL ? use->serial : 0;
}

#endif
