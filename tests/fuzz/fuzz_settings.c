/* fuzz_settings: the input is a cluster.conf, its first line also one flag and one size. A refused
 * file leaves nothing allocated; an accepted one leaves every value in its range. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/settings.h"

struct demo {
    char *model;
    uint32_t group;
    uint32_t sequences_max;
    double watermark;
    bool caching;
    uint64_t kv_bytes;
    int policy;
};

#define SETTING_STRUCT struct demo
static const char *const policy_names[] = {"prefix", "round_robin", NULL};
static const struct setting table[] = {
    SETTING_TEXT("model", model, NULL, "Model."),
    SETTING_U32("group", group, "0", 0, 1023, "Group."),
    SETTING_U32("max-num-seqs", sequences_max, "256", 1, 65536, "Sequences."),
    SETTING_DOUBLE("watermark", watermark, "0.01", 0, 1, "Share."),
    SETTING_BOOL("caching", caching, "true", "Reuse."),
    SETTING_BYTES("kv-cache-memory", kv_bytes, "1GiB", "Memory."),
    SETTING_ENUM("policy", policy, "prefix", policy_names, "Policy."),
    SETTING_END};
static const char *const foreign[] = {"max-paddings", "not ours.", NULL};
static const struct settings_spec spec = {
    .program = "demo", .summary = "Demo.", .section = "worker", .table = table, .foreign = foreign};

static void check(int r, struct demo *demo, const struct errmsg *err)
{
    struct buffer out;

    if (r < 0) {
        ASSERT(demo->model == NULL && err->text[0] != '\0');
        return;
    }
    ASSERT(demo->group <= 1023 && demo->sequences_max >= 1 && demo->sequences_max <= 65536);
    ASSERT(demo->watermark >= 0 && demo->watermark <= 1);
    ASSERT(demo->policy == 0 || demo->policy == 1);
    buffer_init(&out, SIZE_MAX);
    settings_dump(&spec, demo, &out);
    ASSERT(buffer_finish(&out) == 0);
    buffer_done(&out);
    settings_done(&spec, demo);
}

static void try_file(const uint8_t *data, size_t bytes)
{
    char path[64];
    char *argv[] = {(char *)"demo", (char *)"--config", path, NULL};
    struct errmsg err = {""};
    struct demo demo;
    int fd = memfd_create("conf", MFD_CLOEXEC);
    ssize_t written = write(fd, data, bytes);

    ASSERT(fd >= 0 && written == (ssize_t)bytes);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    check(settings_parse(&spec, &demo, 3, argv, &err), &demo, &err);
    (void)close(fd);
}

static void try_flag(char *flag)
{
    char *argv[] = {(char *)"demo", flag, NULL};
    struct errmsg err = {""};
    struct demo demo;

    if (strncmp(flag, "--config", 8) == 0 || strncmp(flag, "--help", 6) == 0 ||
        strncmp(flag, "--version", 9) == 0 || strcmp(flag, "-h") == 0)
        return; /* reads files, prints */
    check(settings_parse(&spec, &demo, 2, argv, &err), &demo, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const uint8_t *newline = memchr(data, '\n', bytes);
    size_t line_bytes = newline != NULL ? (size_t)(newline - data) : bytes;
    char *line = mem_strndup((const char *)data, line_bytes);
    uint64_t size;

    try_file(data, bytes);
    try_flag(line);
    (void)settings_parse_bytes(line, &size);
    mem_free(line);
    return 0;
}
