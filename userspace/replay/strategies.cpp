// SPDX-License-Identifier: MIT
#include "replay/strategies.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "replay/strategy_baselines.hpp"
#include "replay/strategy_mercury.hpp"

namespace mercury::replay {
namespace {

struct Entry {
    std::string_view name;
    MadeStrategy (*make)(const StrategySpec& spec);
};

constexpr std::array registry{
    Entry{"fifo", make_fifo},
    Entry{"p3", make_p3},
    Entry{"bytescheduler", make_bytescheduler},
    Entry{"tictac", make_tictac},
    Entry{"allreduce", make_allreduce},
    Entry{"tensorlights", make_tensorlights},
    Entry{"mercury-user", make_mercury_user},
    Entry{"mercury", make_mercury},
    Entry{"mercury-no-priority", make_mercury_no_priority},
    Entry{"mercury-no-aggregation", make_mercury_no_aggregation},
};

}  // namespace

Result<std::unique_ptr<Strategy>> make_strategy(const StrategySpec& spec) {
    const auto* const entry =
        std::find_if(registry.begin(), registry.end(),
                     [&](const Entry& candidate) { return candidate.name == spec.name; });
    if (entry == registry.end())
        return Error{fmt::format("strategy \"{}\" is none of {}", spec.name,
                                 fmt::join(strategy_names(), ", "))};
    return entry->make(spec);
}

std::vector<std::string> strategy_names() {
    std::vector<std::string> names;
    for (const Entry& entry : registry)
        names.emplace_back(entry.name);
    return names;
}

}  // namespace mercury::replay
