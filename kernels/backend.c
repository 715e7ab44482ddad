/* backend.c - the table of backends: the one place that names them all.
 *
 * A cpu backend on a processor without any vector family is still a working backend: it runs the
 * reference ops, and says so in `isa`, which the worker logs and exports. */
#include "kernels/backend.h"

#include <errno.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"
#include "proto/base/assert.h"
#include "proto/base/mem.h"

static const struct backend_ops *const backends[] = {&cpu_backend_ops, &ref_backend_ops};
#define BACKENDS (sizeof(backends) / sizeof(backends[0]))

static const struct backend_ops *find(const char *name)
{
    for (size_t i = 0; i < BACKENDS; i++) {
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    }
    return NULL;
}

int backend_open(const struct backend_settings *settings, struct backend **ret_backend,
                 struct errmsg *err)
{
    ASSERT(settings->threads >= 1);
    const char *isa = settings->isa;
    if (isa != NULL && strcmp(isa, "auto") == 0)
        isa = NULL;
    struct backend *b = mem_zalloc(sizeof(*b));
    b->ops = find(settings->name);
    b->kv_dtype = settings->kv_dtype;
    int r = -ENOENT;
    if (b->ops == NULL) {
        (void)errmsg_set(err, r, "no backend '%s'; there are: cpu, ref", settings->name);
        goto out;
    }
    r = b->ops->open(b, settings->threads, isa, err);
    if (r == -ENOTSUP && isa == NULL) { /* no family for this processor */
        b->ops = &ref_backend_ops;
        r = b->ops->open(b, settings->threads, isa, err);
    }
    if (r < 0)
        goto out;
    ASSERT(b->isa != NULL && b->kv_format != NULL && b->threads >= 1);
    *ret_backend = b;
    b = NULL;
out:
    mem_free(b);
    return r == -ENOTSUP ? -ENOENT : r;
}

void backend_close(struct backend *b)
{
    if (b == NULL)
        return;
    b->ops->close(b);
    mem_free(b);
}

const char *backend_cpu_family(size_t i, const char **ret_missing)
{
    const struct cpu_family *family = cpu_family_at(i);
    if (family == NULL)
        return NULL;
    *ret_missing = cpu_family_missing(family);
    return family->name;
}
