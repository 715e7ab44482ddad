/* model_file.c - paths only; nothing of the file is read here. */
#include "worker/model_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/mem.h"

#define SUFFIX ".gguf"

static bool has_suffix(const char *name)
{
    size_t bytes = strlen(name);
    return bytes > strlen(SUFFIX) && strcmp(name + bytes - strlen(SUFFIX), SUFFIX) == 0;
}

/* "m-00002-of-00003": where its "-00002-of-" is, of several the last ("best-of-n" is a name, too);
 * NULL: the name is not one of a split model. */
static const char *find_part(const char *name)
{
    const char *part = NULL;
    for (const char *of = strstr(name, "-of-"); of != NULL; of = strstr(of + 1, "-of-")) {
        bool is_part = of - name > 6 && of[-6] == '-' && strspn(of - 5, "0123456789") == 5 &&
                       strspn(of + 4, "0123456789") == 5;
        part = is_part ? of - 6 : part;
    }
    return part;
}

/* Of the parts of a split model the first stands for all. */
static bool is_later_part(const char *name)
{
    const char *part = find_part(name);
    return part != NULL && strncmp(part + 1, "00001", 5) != 0;
}

static bool is_hf_folder(const char *path)
{
    static const char *const weights[] = {"model.safetensors", "model.safetensors.index.json"};
    bool found = false;
    for (size_t i = 0; i < 2 && !found; i++) {
        char *file = mem_printf("%s/%s", path, weights[i]);
        found = access(file, F_OK) == 0;
        mem_free(file);
    }
    return found;
}

static int find_in_folder(const char *path, char **ret_file, struct errmsg *err)
{
    DIR *folder = opendir(path);
    char *found = NULL;
    int count = 0;
    if (folder == NULL)
        return errmsg_errno(err, "open folder '%s'", path);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (!has_suffix(entry->d_name) || is_later_part(entry->d_name))
            continue;
        mem_free(found);
        found = mem_printf("%s/%s", path, entry->d_name);
        count++;
    }
    (void)closedir(folder);
    if (count == 0 && is_hf_folder(path)) {
        *ret_file = mem_strdup(path);
        return 0;
    }
    if (count != 1) {
        mem_free(found);
        return errmsg_set(err, count == 0 ? -ENOENT : -EINVAL,
                          "folder '%s' has %d files that end in .gguf%s; name the file", path,
                          count, count == 0 ? " and no model.safetensors" : "");
    }
    *ret_file = found;
    return 0;
}

int model_file_find(const char *path, char **ret_file, struct errmsg *err)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return errmsg_errno(err, "model '%s'", path);
    if (S_ISDIR(info.st_mode))
        return find_in_folder(path, ret_file, err);
    if (!S_ISREG(info.st_mode))
        return errmsg_set(err, -EINVAL, "model '%s' is neither a file nor a folder", path);
    *ret_file = mem_strdup(path);
    return 0;
}

char *model_file_name(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    char *name = mem_strndup(path + start, end - start);
    if (!has_suffix(name))
        return name;
    name[strlen(name) - strlen(SUFFIX)] = '\0';
    const char *part = find_part(name);
    if (part != NULL && strlen(part) == strlen("-00001-of-00002"))
        name[part - name] = '\0';
    return name;
}
