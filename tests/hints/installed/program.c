/* SPDX-License-Identifier: GPL-2.0 */
#define _DEFAULT_SOURCE
#include <mercury.h>
#include <stdio.h>
#include <sys/socket.h>

int main(void) {
    const struct mercury_layer layers[] = {{"first", 100, 0, 0}, {"second", 100, 0, 0}};
    struct mercury_client* client = mercury_client_new(NULL);
    struct mercury_status status;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int priority = 0;
    socklen_t size = sizeof(priority);

    if (mercury_client_job(client, "net", layers, 2, 2) != MERCURY_FALLBACK ||
        mercury_client_assign(client, fd, 1, 128 << 10) != MERCURY_FALLBACK ||
        mercury_client_step(client) != MERCURY_FALLBACK)
        return 1;
    if (mercury_client_assign(client, fd, 2, 0) != MERCURY_ERROR_ARGUMENT) {
        puts(mercury_client_error(client));
        return 1;
    }
    mercury_client_status(client, &status, sizeof(status));
    getsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, &size);
    printf("%zu classes, priority %d, %s\n", status.classes, priority, status.why);
    mercury_client_free(client);
    return 0;
}
