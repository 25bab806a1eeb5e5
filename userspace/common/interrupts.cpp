// SPDX-License-Identifier: MIT
#include "common/interrupts.hpp"

#include <csignal>

#include <sys/signalfd.h>

namespace mercury {

Result<Fd> interrupts() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    Fd fd(signalfd(-1, &set, SFD_CLOEXEC));
    if (!fd)
        return system_error("signalfd");
    return fd;
}

}  // namespace mercury
