/* card_path.c - which reader a path gets.
 *
 *   directory   tokenizer.json, else tokenizer.model, else its only .gguf
 *   file        by its first bytes: "GGUF"; '{', or a name in .json: JSON; else SentencePiece
 */
#include "proto/files/card_path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "proto/files/card_gguf.h"
#include "proto/files/file_bytes.h"
#include "proto/files/model_dir.h"
#include "proto/files/sentencepiece.h"
#include "proto/files/tokenizer_json.h"

#define KINDS "supported: a GGUF, tokenizer.json, tokenizer.model, or a directory with one of them"

/* --- which file ------------------------------------------------------------------------------ */

static bool ends_with(const char *name, const char *suffix)
{
    size_t bytes = strlen(name), suffix_bytes = strlen(suffix);
    return bytes > suffix_bytes && strcmp(name + bytes - suffix_bytes, suffix) == 0;
}

/* The only .gguf of a folder. */
static int find_gguf(const char *folder, char **ret_path, struct errmsg *err)
{
    char *found = NULL;
    int count = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return errmsg_errno(err, "open directory '%s'", folder);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (!ends_with(entry->d_name, ".gguf"))
            continue;
        count++;
        mem_free(found);
        found = mem_printf("%s/%s", folder, entry->d_name);
    }
    (void)closedir(dir);
    if (count == 1) {
        *ret_path = found;
        return 0;
    }
    mem_free(found);
    return count == 0
               ? errmsg_set(err, -ENOENT, "directory '%s' has no tokenizer; " KINDS, folder)
               : errmsg_set(err, -EINVAL, "directory '%s' has %d GGUF files: name the one you mean",
                            folder, count);
}

/* *ret_path: the file, *ret_folder: where it lies. Both by mem_alloc. */
static int resolve(const char *path, char **ret_path, char **ret_folder, struct errmsg *err)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
    struct stat info;
    if (stat(path, &info) < 0)
        return errmsg_errno(err, "look at '%s'", path);
    if (!S_ISDIR(info.st_mode)) {
        const char *slash = strrchr(path, '/');
        *ret_path = mem_strdup(path);
        *ret_folder = slash == NULL   ? mem_strdup(".")
                      : slash == path ? mem_strdup("/")
                                      : mem_strndup(path, (size_t)(slash - path));
        return 0;
    }
    for (size_t i = 0; i < 2; i++) {
        char *file = mem_printf("%s/%s", path, names[i]);
        if (access(file, F_OK) == 0) {
            *ret_path = file;
            *ret_folder = mem_strdup(path);
            return 0;
        }
        mem_free(file);
    }
    int r = find_gguf(path, ret_path, err);
    if (r == 0)
        *ret_folder = mem_strdup(path);
    return r;
}

static int read_magic(const char *path, char ret_magic[4], struct errmsg *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe: refused at once */
    if (fd < 0)
        return errmsg_errno(err, "open '%s'", path);
    ssize_t got = read(fd, ret_magic, 4);
    int r = got < 0   ? errmsg_errno(err, "read '%s'", path)
            : got < 4 ? errmsg_set(err, -EINVAL, "'%s' has %zd bytes; " KINDS, path, got)
                      : 0;
    (void)close(fd);
    return r;
}

/* --- each kind ------------------------------------------------------------------------------- */

static int from_gguf(const char *path, struct model_card *card, struct errmsg *err)
{
    struct gguf *gguf = NULL;
    struct gguf_string name = {"", 0};
    char key[96];
    int r = gguf_open(path, &gguf, err);
    if (r < 0)
        return r;
    r = card_words_from_gguf(gguf, card, err);
    if (r == 0) {
        (void)gguf_get_string(gguf, "general.architecture", &name);
        card->architecture = mem_strndup(name.text, name.bytes);
        card->context_tokens = INT32_MAX;
        (void)snprintf(key, sizeof(key), "%.40s.context_length", card->architecture);
        (void)gguf_get_u32(gguf, key, &card->context_tokens);
        card->vocab_size = card->tokens.count;
    }
    gguf_close(gguf);
    return r < 0 ? errmsg_prefix(err, r, "%s", path) : 0;
}

static int from_words(const char *path, const char *folder, bool json, struct model_card *card,
                      struct errmsg *err)
{
    struct model_dir dir = {0};
    char *data = NULL;
    size_t bytes = 0;
    int r = model_dir_read(folder, &dir, err);
    if (r < 0)
        return r;
    r = file_bytes_read(path, TOKENIZER_JSON_BYTES_MAX, &data, &bytes, err);
    if (r < 0)
        goto out;
    r = json ? card_words_from_tokenizer_json(data, bytes, dir.added, dir.added_count, card, err)
             : card_words_from_sentencepiece(data, bytes, card, err);
    if (r == 0)
        r = model_dir_fill_card(&dir, card, err);
    if (r < 0)
        (void)errmsg_prefix(err, r, "%s", path);
out:
    mem_free(data);
    model_dir_done(&dir);
    return r;
}

static void make_fingerprint(struct model_card *card)
{
    uint64_t digest[2];
    model_card_words_digest(card, digest);
    card->fingerprint =
        mem_printf("%016llx%016llx", (unsigned long long)digest[1], (unsigned long long)digest[0]);
}

int card_from_path(const char *path, const char *name, struct model_card **ret_card,
                   struct errmsg *err)
{
    struct model_card *card = NULL;
    char *file = NULL, *folder = NULL;
    char magic[4];
    int r = resolve(path, &file, &folder, err);
    if (r == 0)
        r = read_magic(file, magic, err);
    if (r < 0)
        goto out;
    card = model_card_new();
    card->name = mem_strdup(name);
    bool json = magic[0] == '{' || ends_with(file, ".json");
    r = memcmp(magic, "GGUF", 4) == 0 ? from_gguf(file, card, err)
                                      : from_words(file, folder, json, card, err);
    if (r < 0)
        goto out;
    if (card->pre == NULL)
        card->pre = mem_strdup("");
    make_fingerprint(card);
    r = model_card_check(card, err);
    if (r < 0)
        goto out;
    *ret_card = card;
    card = NULL;
out:
    model_card_unref(card);
    mem_free(file);
    mem_free(folder);
    return r;
}
