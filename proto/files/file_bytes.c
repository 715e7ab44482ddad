/* file_bytes.c - see file_bytes.h. The size is the one of the open file; one that shrinks meanwhile
 * ends where it ends. */
#include "proto/files/file_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/mem.h"

int file_bytes_read(const char *path, size_t bytes_max, char **ret_data, size_t *ret_bytes,
                    struct errmsg *err)
{
    struct stat info;
    char *data = NULL;
    size_t used = 0;
    int r = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe: refused at once */
    if (fd < 0)
        return errmsg_errno(err, "open '%s'", path);
    if (fstat(fd, &info) < 0) {
        r = errmsg_errno(err, "look at '%s'", path);
        goto out;
    }
    if (!S_ISREG(info.st_mode)) {
        r = errmsg_set(err, -EISDIR, "'%s' is not a file", path);
        goto out;
    }
    if ((unsigned long long)info.st_size > bytes_max) {
        r = errmsg_set(err, -EFBIG, "'%s' has %lld bytes, at most %zu are read", path,
                       (long long)info.st_size, bytes_max);
        goto out;
    }
    data = mem_alloc((size_t)info.st_size + 1);
    while (used < (size_t)info.st_size) {
        ssize_t got = read(fd, data + used, (size_t)info.st_size - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            r = errmsg_errno(err, "read '%s'", path);
            goto out;
        }
        if (got == 0)
            break;
        used += (size_t)got;
    }
    data[used] = '\0';
    *ret_data = data;
    *ret_bytes = used;
    data = NULL;
out:
    mem_free(data);
    (void)close(fd);
    return r;
}
