// SPDX-License-Identifier: MIT
#include "common/descriptors.hpp"

#include <sys/resource.h>

namespace mercury {

void raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

}  // namespace mercury
