// SPDX-License-Identifier: MIT
#include "netlink/options.hpp"

#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/units.hpp"

namespace mercury::netlink {

std::string to_text(const Option& option, std::uint64_t value) {
    if (value == option.none)
        return "none";
    switch (option.unit) {
        case Unit::Count:
            break;
        case Unit::Percent:
            return fmt::format("{}%", value);
        case Unit::Bytes:
            return bytes_to_string(value);
        case Unit::BytesPerSecond:
            return to_string(Rate{value * 8});
        case Unit::Nanoseconds:
            return time_to_string(std::chrono::nanoseconds(value));
        case Unit::Mask:
            return fmt::format("{:#x}", value);
        case Unit::Word:
            return std::string(value < option.words.size() ? option.words[value] : "unknown");
        case Unit::Flag:
            return value != 0 ? "true" : "false";
    }
    return fmt::format("{}", value);
}

std::string allowed(const Option& option) {
    switch (option.unit) {
        case Unit::Word:
            return fmt::format("one of {}", fmt::join(option.words, ", "));
        case Unit::Flag:
            return "true or false";
        case Unit::Mask:
            return fmt::format(
                "one run of at most {} bits{}",
                option.attribute == TCA_MERCURY_MASK ? MERCURY_MASK_BITS : MERCURY_JOB_MASK_BITS,
                option.min == 0 ? ", or 0" : "");
        default:
            return fmt::format("{} to {}{}", to_text(option, option.min),
                               to_text(option, option.max), option.none ? ", or none" : "");
    }
}

}  // namespace mercury::netlink
