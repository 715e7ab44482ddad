/* admin_socket.c - clients and their lines.
 *
 *   READING --line--> CALLED (waiting for the answer) --answer--> WRITING --all out--> READING
 *      any --closed by peer, idle, too long a line, does not read--> closed
 *
 * Why a probe before bind: the file of a killed worker must not keep the next one out, the socket
 * of a living one must not be taken from it. Cost: nothing while no one is connected. */
#include "worker/admin_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#define LOG_MODULE "admin"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "worker/admin_table.h"

#define ANSWER_BYTES_MAX ((size_t)129 << 20)

enum client_state { CLIENT_FREE = 0, CLIENT_READING, CLIENT_CALLED, CLIENT_WRITING };

struct client {
    enum client_state state;
    uint32_t serial;
    int fd;
    bool table;
    uint64_t active_ms;
    char line[ADMIN_LINE_MAX];
    uint32_t line_bytes;
    struct buffer out;
};

struct admin_socket {
    int fd;
    struct sockaddr_un address;
    admin_call_fn on_call;
    void *user;
    uint32_t serial;
    struct client clients[ADMIN_CLIENTS_MAX];
};

/* ---- listening ---- */

static int remove_stale(const struct sockaddr_un *address, struct errmsg *err)
{
    struct stat info;
    if (lstat(address->sun_path, &info) < 0)
        return errno == ENOENT ? 0 : errmsg_errno(err, "look at '%s'", address->sun_path);
    if (!S_ISSOCK(info.st_mode))
        return errmsg_set(err, -EEXIST, "'%s' is no socket", address->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errmsg_errno(err, "probe socket");
    int r = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    (void)close(fd);
    if (r == 0)
        return errmsg_set(err, -EADDRINUSE, "a worker listens at '%s' already: give --group N",
                          address->sun_path);
    if (unlink(address->sun_path) < 0 && errno != ENOENT)
        return errmsg_errno(err, "remove the stale '%s'", address->sun_path);
    return 0;
}

int admin_socket_new(const char *path, admin_call_fn on_call, void *user,
                     struct admin_socket **ret_admin, struct errmsg *err)
{
    struct admin_socket *admin = mem_zalloc(sizeof(*admin));
    int r = 0;
    admin->fd = -1;
    admin->on_call = on_call;
    admin->user = user;
    admin->address.sun_family = AF_UNIX;
    ASSERT(strlen(path) < sizeof(admin->address.sun_path));
    memcpy(admin->address.sun_path, path, strlen(path) + 1);
    r = remove_stale(&admin->address, err);
    if (r < 0)
        goto out;
    admin->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (admin->fd < 0)
        r = errmsg_errno(err, "admin socket");
    else if (fchmod(admin->fd, 0600) < 0) /* the file is born with this mode */
        r = errmsg_errno(err, "mode of the admin socket");
    else if (bind(admin->fd, (const struct sockaddr *)&admin->address, sizeof(admin->address)) < 0)
        r = errmsg_errno(err, "bind '%s'", path);
    else if (listen(admin->fd, ADMIN_CLIENTS_MAX) < 0)
        r = errmsg_errno(err, "listen at '%s'", path);
    if (r < 0)
        goto out;
    *ret_admin = admin;
    admin = NULL;
out:
    if (admin != NULL && admin->fd >= 0)
        (void)close(admin->fd);
    mem_free(admin);
    return r;
}

static void close_client(struct client *client)
{
    ASSERT(client->state != CLIENT_FREE);
    (void)close(client->fd);
    buffer_done(&client->out);
    *client = (struct client){.state = CLIENT_FREE, .fd = -1};
}

void admin_socket_free(struct admin_socket *admin)
{
    if (admin == NULL)
        return;
    for (uint32_t i = 0; i < ADMIN_CLIENTS_MAX; i++) {
        if (admin->clients[i].state != CLIENT_FREE)
            close_client(&admin->clients[i]);
    }
    (void)close(admin->fd);
    (void)unlink(admin->address.sun_path);
    mem_free(admin);
}

static bool may_enter(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
        return false;
    if (peer.uid == 0 || peer.uid == geteuid())
        return true;
    log_warn("refused", "uid=%u", (unsigned)peer.uid);
    return false;
}

static void accept_one(struct admin_socket *admin, uint64_t now_ms)
{
    struct client *client = NULL;
    int fd = accept4(admin->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    for (uint32_t i = 0; i < ADMIN_CLIENTS_MAX && client == NULL; i++)
        client = admin->clients[i].state == CLIENT_FREE ? &admin->clients[i] : NULL;
    if (client == NULL || !may_enter(fd)) {
        (void)close(fd);
        return;
    }
    if (++admin->serial == 0)
        admin->serial = 1;
    *client = (struct client){
        .state = CLIENT_READING, .serial = admin->serial, .fd = fd, .active_ms = now_ms};
    buffer_init(&client->out, ANSWER_BYTES_MAX);
}

/* ---- lines ---- */

static void write_some(struct client *client)
{
    while (client->out.bytes > 0) {
        ssize_t n = send(client->fd, client->out.data, client->out.bytes, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            close_client(client);
            return;
        }
        buffer_consume(&client->out, (size_t)n);
    }
    client->state = CLIENT_READING;
}

static void answer(struct client *client, const char *json)
{
    ASSERT(client->state == CLIENT_CALLED);
    if (client->table)
        admin_table_render(json, &client->out);
    else
        buffer_append_text(&client->out, json);
    buffer_append_char(&client->out, '\n');
    if (buffer_finish(&client->out) < 0) {
        close_client(client);
        return;
    }
    client->state = CLIENT_WRITING;
    client->active_ms = clock_ms();
    write_some(client);
}

void admin_socket_answer(struct admin_socket *admin, uint32_t client, const char *json)
{
    for (uint32_t i = 0; i < ADMIN_CLIENTS_MAX; i++) {
        if (admin->clients[i].state == CLIENT_CALLED && admin->clients[i].serial == client)
            answer(&admin->clients[i], json);
    }
}

/* false: a byte that no command has. */
static bool split(char *line, struct admin_call *call)
{
    call->words_count = 0;
    for (char *at = line; *at != '\0';) {
        if (*at == ' ') {
            *at++ = '\0';
            continue;
        }
        if (call->words_count == ADMIN_WORDS_MAX)
            return false;
        call->words[call->words_count++] = at;
        for (; *at != '\0' && *at != ' '; at++) {
            if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\')
                return false;
        }
    }
    return true;
}

static void call_line(struct admin_socket *admin, struct client *client, char *line)
{
    struct admin_call call = {.client = client->serial};
    client->state = CLIENT_CALLED;
    client->table = false;
    if (!split(line, &call)) {
        answer(client, "{\"error\":\"a command is a few words of plain ASCII; try help\"}");
        return;
    }
    if (call.words_count > 0 && strcmp(call.words[0], "table") == 0) {
        client->table = true;
        call.words_count--;
        memmove(call.words, call.words + 1, call.words_count * sizeof(call.words[0]));
    }
    if (call.words_count == 0)
        answer(client, "{\"error\":\"an empty command; try help\"}");
    else
        admin->on_call(admin->user, &call);
}

/* The first line of what was read, if it is whole. */
static void take_lines(struct admin_socket *admin, struct client *client)
{
    while (client->state == CLIENT_READING) {
        char line[ADMIN_LINE_MAX];
        char *end = memchr(client->line, '\n', client->line_bytes);
        if (end == NULL) {
            if (client->line_bytes == ADMIN_LINE_MAX)
                close_client(client); /* no command is so long */
            return;
        }
        size_t bytes = (size_t)(end - client->line);
        memcpy(line, client->line, bytes);
        if (bytes > 0 && line[bytes - 1] == '\r')
            line[bytes - 1] = '\0';
        line[bytes] = '\0';
        client->line_bytes -= (uint32_t)bytes + 1;
        memmove(client->line, end + 1, client->line_bytes);
        call_line(admin, client, line);
    }
}

static void read_some(struct admin_socket *admin, struct client *client, uint64_t now_ms)
{
    ssize_t n =
        recv(client->fd, client->line + client->line_bytes, ADMIN_LINE_MAX - client->line_bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        close_client(client);
        return;
    }
    client->active_ms = now_ms;
    client->line_bytes += (uint32_t)n;
    take_lines(admin, client);
}

/* ---- polling ---- */

uint32_t admin_socket_fds(struct admin_socket *admin, struct pollfd *ret_fds)
{
    uint32_t count = 0;
    ret_fds[count++] = (struct pollfd){.fd = admin->fd, .events = POLLIN};
    for (uint32_t i = 0; i < ADMIN_CLIENTS_MAX; i++) {
        const struct client *client = &admin->clients[i];
        short events = client->state == CLIENT_READING   ? POLLIN
                       : client->state == CLIENT_WRITING ? POLLOUT
                                                         : 0;
        ret_fds[count++] =
            (struct pollfd){.fd = client->state == CLIENT_FREE ? -1 : client->fd, .events = events};
    }
    return count;
}

static void serve(struct admin_socket *admin, struct client *client, short events, uint64_t now_ms)
{
    if (client->state == CLIENT_READING && (events & POLLIN) != 0)
        read_some(admin, client, now_ms);
    else if (client->state == CLIENT_WRITING && (events & POLLOUT) != 0)
        write_some(client);
    else if (client->state != CLIENT_FREE && (events & (POLLHUP | POLLERR)) != 0)
        close_client(client);
    if (client->state == CLIENT_READING && client->line_bytes > 0)
        take_lines(admin, client);
    if (client->state != CLIENT_FREE && client->state != CLIENT_CALLED &&
        now_ms > client->active_ms + ADMIN_IDLE_MS)
        close_client(client);
}

void admin_socket_turn(struct admin_socket *admin, const struct pollfd *fds, uint32_t count,
                       uint64_t now_ms)
{
    ASSERT(count == ADMIN_CLIENTS_MAX + 1);
    for (uint32_t i = 0; i < ADMIN_CLIENTS_MAX; i++) {
        if (admin->clients[i].state != CLIENT_FREE && admin->clients[i].fd == fds[i + 1].fd)
            serve(admin, &admin->clients[i], fds[i + 1].revents, now_ms);
    }
    if ((fds[0].revents & POLLIN) != 0)
        accept_one(admin, now_ms);
}
