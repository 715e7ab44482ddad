/* test_systemd.c - the units of deploy/systemd pass systemd-analyze without a word, and router and
 * worker speak systemd's notify protocol: READY, then WATCHDOG from the main process, STOPPING. */
#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "tests/e2e/harness.h"

#define UNITS SOURCE_DIR "/deploy/systemd"
#define CONF SOURCE_DIR "/deploy/config/cluster.conf"
#define MODEL "llama-gguf-f32"
#define MESSAGE_DEADLINE_MS 30000u

struct service {
    pid_t pid;
    int fd; /* the notify socket */
};

static char folder[64];
static struct service services[2];

static int setup(void **state)
{
    (void)state;
    services[0].fd = services[1].fd = -1;
    (void)snprintf(folder, sizeof(folder), "/tmp/refrain-e2e-systemd-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        if (services[i].pid > 0) {
            (void)kill(services[i].pid, SIGKILL);
            (void)waitpid(services[i].pid, NULL, 0);
        }
        if (services[i].fd >= 0)
            (void)close(services[i].fd);
    }
    folder_remove(folder);
    return 0;
}

/* Units name programs without a path: systemd looks into /usr/local/bin, /usr/bin and so on. Here
 * they are in the build folder. */
static char *copy_unit(const char *name)
{
    static const char installed[] = "ExecStart=refrain";
    char *from = mem_printf(UNITS "/%s", name), *to = mem_printf("%s/%s", folder, name);
    char *text = file_read(from, NULL);

    assert_non_null(text);
    char *at = strstr(text, installed);
    char *changed = at ? mem_printf("%.*sExecStart=" BUILD_DIR "/refrain%s", (int)(at - text), text,
                                    at + sizeof(installed) - 1)
                       : mem_strdup(text);
    file_write(to, changed);
    mem_free(changed);
    mem_free(text);
    mem_free(from);
    return to;
}

static void test_the_units_pass_systemd_analyze_without_a_word(void **state)
{
    static const char *const names[] = {"refrain-router.service", "refrain-worker@.service",
                                        "refrain.target"};
    const char *argv[] = {"/usr/bin/systemd-analyze", "verify", NULL, NULL, NULL, NULL};
    struct program program;
    char *paths[3];
    (void)state;

    if (!file_exists(argv[0])) {
        print_message("skipped: there is no systemd-analyze\n");
        skip();
    }
    for (size_t i = 0; i < 3; i++)
        argv[2 + i] = paths[i] = copy_unit(names[i]);
    program_run(&program, 60000, argv);
    assert_string_equal(program.err, "");
    assert_int_equal(program.code, 0);
    program_done(&program);
    for (size_t i = 0; i < 3; i++)
        mem_free(paths[i]);
}

static int open_notify_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int yes = 1, fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_true(strlen(path) < sizeof(address.sun_path));
    memcpy(address.sun_path, path, strlen(path) + 1);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)), 0);
    return fd;
}

static void start(struct service *service, const char *name, const char *const *argv)
{
    char *path = mem_printf("%s/%s.notify", folder, name);
    struct errmsg err = {""};

    service->fd = open_notify_socket(path);
    (void)setenv("NOTIFY_SOCKET", path, 1);
    (void)setenv("WATCHDOG_USEC", "1000000", 1);
    service->pid = process_spawn((char *const *)(uintptr_t)argv, NULL, 0, -1, -1, SIGKILL, &err);
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    mem_free(path);
    if (service->pid < 0)
        fail_msg("%s", err.text);
}

/* One message; its sender must be the main process. */
static void receive(const struct service *service, char *ret_text, size_t text_max)
{
    char control[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec part = {ret_text, text_max - 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct pollfd poll_fd = {service->fd, POLLIN, 0};
    struct ucred sender = {0};

    if (poll(&poll_fd, 1, MESSAGE_DEADLINE_MS) <= 0)
        fail_msg("no message to systemd within %u ms", MESSAGE_DEADLINE_MS);
    ssize_t bytes = recvmsg(service->fd, &message, 0);
    assert_true(bytes > 0);
    ret_text[bytes] = '\0';
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    assert_non_null(header);
    memcpy(&sender, CMSG_DATA(header), sizeof(sender));
    assert_int_equal(sender.pid, service->pid);
}

/* Messages until one holds `words`. */
static void await_message(const struct service *service, const char *words)
{
    uint64_t deadline = clock_ms() + MESSAGE_DEADLINE_MS;
    char text[512];

    while (clock_ms() < deadline) {
        receive(service, text, sizeof(text));
        if (strstr(text, words))
            return;
    }
    fail_msg("'%s' does not come", words);
}

static void stop(struct service *service)
{
    int status = 0;

    assert_int_equal(kill(service->pid, SIGTERM), 0);
    await_message(service, "STOPPING=1");
    assert_int_equal(waitpid(service->pid, &status, 0), service->pid);
    service->pid = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void check_service(struct service *service, const char *name)
{
    uint64_t began = clock_ms();

    await_message(service, "READY=1");
    unsigned ready_ms = (unsigned)(clock_ms() - began);
    for (int i = 0; i < 3; i++)
        await_message(service, "WATCHDOG=1");
    print_message("%s: READY after %u ms, 3 WATCHDOG within %u ms (limit 1000 ms each)\n", name,
                  ready_ms, (unsigned)(clock_ms() - began) - ready_ms);
}

static void test_router_and_worker_notify_ready_watchdog_and_stopping(void **state)
{
    (void)state;
    start(&services[0], "router",
          (const char *const[]){BUILD_DIR "/refrain-router", "--config", CONF, "--run-dir", folder,
                                "--port", "0", "--log-level", "warn", NULL});
    check_service(&services[0], "refrain-router");
    start(&services[1], "worker",
          (const char *const[]){BUILD_DIR "/refrain-worker", "--config", CONF, "--run-dir", folder,
                                "--group", "7", "--model", e2e_tiny(MODEL),
                                "--tensor-parallel-size", "2", "--log-level", "warn", NULL});
    check_service(&services[1], "refrain-worker");
    stop(&services[1]);
    stop(&services[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_units_pass_systemd_analyze_without_a_word),
        cmocka_unit_test(test_router_and_worker_notify_ready_watchdog_and_stopping),
    };
    e2e_begin();
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
