// SPDX-License-Identifier: MIT
#include "netlink/options.hpp"

#include <set>

#include <catch2/catch.hpp>

using namespace mercury::netlink;

namespace {

template <typename Object, typename ForEach>
std::multiset<unsigned> attributes(ForEach for_each) {
    std::multiset<unsigned> found;
    Object object;
    for_each(object, [&](const auto& described, auto&) { found.insert(described.attribute); });
    return found;
}

std::multiset<unsigned> from_to(unsigned first, unsigned last) {
    std::multiset<unsigned> all;
    for (unsigned type = first; type <= last; ++type)
        all.insert(type);
    return all;
}

}  // namespace

TEST_CASE("every attribute of the ABI is in its list, once") {
    auto options = attributes<MercuryOptions>(
        [](auto& object, auto visit) { for_each_option(object, visit); });
    options.insert(TCA_MERCURY_DEADLINES);
    CHECK(options == from_to(TCA_MERCURY_JOBS, TCA_MERCURY_MAX));

    auto of_class = attributes<ClassOptions>(
        [](auto& object, auto visit) { for_each_class_option(object, visit); });
    of_class.insert({TCA_MERCURY_CLASS_JOB, TCA_MERCURY_CLASS_BAND});
    CHECK(of_class == from_to(TCA_MERCURY_CLASS_WEIGHT, TCA_MERCURY_CLASS_MAX));

    auto counters = attributes<MercuryStatistics>(
        [](auto& object, auto visit) { for_each_counter(object, visit); });
    counters.insert(TCA_MERCURY_STATS_SOJOURN);
    CHECK(counters == from_to(TCA_MERCURY_STATS_MEMORY, TCA_MERCURY_STATS_MAX));
}

TEST_CASE("no two fields share an attribute") {
    MercuryOptions options;
    std::uint64_t number = 0;
    for_each_option(options, [&](const Option&, auto& field) {
        field.emplace(static_cast<std::uint8_t>(++number));
    });
    std::uint64_t again = 0;
    for_each_option(options, [&](const Option& option, auto& field) {
        INFO(option.name);
        CHECK(number_of(*field) == ++again);
    });
}

TEST_CASE("the default of an option is in its range, or none") {
    MercuryOptions options;
    for_each_option(options, [](const Option& option, auto&) {
        INFO(option.name);
        CHECK(((option.unset >= option.min && option.unset <= option.max) ||
               option.unset == option.none));
        CHECK(option.words.empty() == (option.unit != Unit::Word));
    });
}
