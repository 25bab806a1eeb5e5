// SPDX-License-Identifier: MIT
#include "replay/classes.hpp"

#include <mercury.h>

#include <fmt/format.h>

namespace mercury::replay {

// Above this a cut would lie below one byte for any layer we accept.
constexpr std::size_t classes_max = 32;
static_assert(classes_max <= MERCURY_BANDS_DEFAULT);

Result<std::vector<PriorityClass>> group_layers(const Profile& profile, std::size_t max_classes) {
    if (max_classes < 1 || max_classes > classes_max)
        return Error{fmt::format("classes must be 1 to {}, not {}", classes_max, max_classes)};

    std::vector<PriorityClass> classes;
    const std::uint64_t total = profile.bytes();
    std::uint64_t before = 0;     // bytes of the layers so far
    std::size_t cuts_passed = 0;  // of max_classes - 1
    for (std::size_t i = 0; i < profile.layers.size(); ++i) {
        const std::uint64_t bytes = profile.layers[i].bytes;
        const std::uint64_t middle = before + bytes / 2;
        bool new_class = classes.empty();
        while (cuts_passed + 1 < max_classes &&
               middle >= total >> (max_classes - 1 - cuts_passed)) {
            ++cuts_passed;
            new_class = true;
        }
        if (new_class)
            classes.push_back({i, i, 0});
        classes.back().last = i;
        classes.back().bytes += bytes;
        before += bytes;
    }
    return classes;
}

std::uint32_t mark_of_class(std::size_t index) {
    return static_cast<std::uint32_t>(index + 1) & MERCURY_MASK_DEFAULT;
}

}  // namespace mercury::replay
