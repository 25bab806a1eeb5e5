// SPDX-License-Identifier: MIT
#include "layers/classes.hpp"

#include <algorithm>
#include <bit>

#include <mercury.h>

#include <fmt/format.h>

namespace mercury {

// Above this a cut would lie below one byte for any layer we accept.
constexpr std::size_t classes_max = 32;
static_assert(classes_max <= MERCURY_BANDS_DEFAULT);

namespace {

/// Of MAX_CLASSES classes, rising: 1/2 and, in turns, one more towards the input and the output.
std::vector<std::uint64_t> cuts_of(std::uint64_t total, std::size_t max_classes) {
    std::vector<std::uint64_t> cuts;
    for (std::size_t shift = 1; cuts.size() + 1 < max_classes; ++shift) {
        cuts.push_back(total >> shift);
        if (shift > 1 && cuts.size() + 1 < max_classes)
            cuts.push_back(total - (total >> shift));
    }
    std::ranges::sort(cuts);
    return cuts;
}

}  // namespace

Result<std::vector<PriorityClass>> group_layers(const Profile& profile, std::size_t max_classes) {
    if (max_classes < 1 || max_classes > classes_max)
        return Error{fmt::format("classes must be 1 to {}, not {}", classes_max, max_classes)};

    std::vector<PriorityClass> classes;
    const bool none_share = profile.layers.size() <= max_classes;
    const auto cuts = cuts_of(profile.bytes(), max_classes);
    auto next_cut = cuts.begin();
    std::uint64_t before = 0;  // bytes of the layers so far
    for (std::size_t i = 0; i < profile.layers.size(); ++i) {
        const std::uint64_t bytes = profile.layers[i].bytes;
        const std::uint64_t middle = before + bytes / 2;
        bool new_class = classes.empty() || none_share;
        for (; next_cut != cuts.end() && middle >= *next_cut; ++next_cut)
            new_class = true;
        if (new_class)
            classes.push_back({i, i, 0});
        classes.back().last = i;
        classes.back().bytes += bytes;
        before += bytes;
    }
    return classes;
}

std::uint32_t mark_of_class(unsigned job, std::size_t index) {
    constexpr int job_shift = std::countr_zero(MERCURY_JOB_MASK_DEFAULT);
    return (job << job_shift & MERCURY_JOB_MASK_DEFAULT) |
           (static_cast<std::uint32_t>(index + 1) & MERCURY_MASK_DEFAULT);
}

unsigned job_of_mark(std::uint32_t mark) {
    return (mark & MERCURY_JOB_MASK_DEFAULT) >> std::countr_zero(MERCURY_JOB_MASK_DEFAULT);
}

}  // namespace mercury
