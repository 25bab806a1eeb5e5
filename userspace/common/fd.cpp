// SPDX-License-Identifier: MIT
#include "common/fd.hpp"

#include <cerrno>
#include <system_error>

#include <unistd.h>

#include <fmt/format.h>

namespace mercury {

Fd::~Fd() {
    if (fd_ >= 0)
        ::close(fd_);
}

Error system_error(std::string_view what) {
    const int code = errno;
    return Error{fmt::format("{}: {}", what, std::generic_category().message(code))};
}

}  // namespace mercury
