// SPDX-License-Identifier: GPL-2.0
#include <cstdio>
#include <mercury.hpp>

#include <sys/socket.h>

int main() {
    mercury::HintClient client;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (client.job("net", {{"first", 100, 0, 0}, {"second", 100, 0, 0}}, 2) != MERCURY_FALLBACK ||
        client.assign(fd, 1) != MERCURY_FALLBACK)
        return 1;
    int priority = 0;
    socklen_t size = sizeof(priority);
    getsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, &size);
    std::printf("%zu classes, priority %d, %s\n", client.classes(), priority, client.status().why);
    return 0;
}
