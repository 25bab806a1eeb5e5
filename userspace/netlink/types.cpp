// SPDX-License-Identifier: MIT
#include "netlink/types.hpp"

#include <fmt/format.h>

namespace mercury::netlink {

std::string to_string(Handle handle) {
    if (handle == root)
        return "root";
    if (handle == ingress)
        return "ingress";
    if (handle.minor() == 0)
        return fmt::format("{:x}:", handle.major());
    return fmt::format("{:x}:{:x}", handle.major(), handle.minor());
}

}  // namespace mercury::netlink
