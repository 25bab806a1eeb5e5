// SPDX-License-Identifier: MIT
#include "cli/top.hpp"

#include <algorithm>

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::cli;
using namespace std::chrono_literals;

namespace {

netlink::Class class_of(std::uint32_t minor, netlink::ClassOptions options, std::uint64_t bytes) {
    netlink::Class one;
    one.classid = netlink::Handle{0x10000}.child(minor);
    one.options = options;
    one.statistics.bytes = bytes;
    one.statistics.packets = bytes / 1000;
    one.mercury.emplace();
    one.mercury->missed = 3;
    if (options.band)
        one.mercury->sojourn = {5, 0, 1, 0};
    return one;
}

/// A job with so many bands, of which only the first and the last have sent something.
TopView view_with(std::uint32_t bands) {
    TopView view;
    view.device = "eth0";
    view.interval = 1s;
    auto& classes = view.delta.classes;
    classes.push_back(class_of(MERCURY_MINOR_JOB(0), {.job = 0}, 500'000));
    for (std::uint32_t band = 0; band < bands; ++band) {
        const bool sends = band == 0 || band == bands - 1;
        classes.push_back(
            class_of(MERCURY_MINOR_BAND(0, band), {.job = 0, .band = band}, sends ? 250'000 : 0));
    }
    classes.push_back(class_of(MERCURY_MINOR_DEFAULT, {}, 0));
    auto& qdisc = view.delta.qdisc;
    qdisc.handle = {0x10000};
    qdisc.statistics.bytes = 500'000;
    qdisc.options = netlink::MercuryOptions{.jobs = 16, .rate = 1'000'000};
    qdisc.mercury.emplace();
    view.total = view.delta;
    return view;
}

bool any_contains(const std::vector<std::string>& lines, const std::string& part) {
    return std::ranges::any_of(
        lines, [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("at 80x24 every line fits, and bars show parts of the link") {
    const auto lines = top_lines(view_with(4), {80, 24});
    for (const std::string& line : lines) {
        INFO(line);
        CHECK(line.size() <= 80);
    }
    REQUIRE(lines.size() == 6 + 6);
    CHECK(lines[1].starts_with("sent 4 Mbit/s of 8mbit [########        ]"));
    CHECK(lines[6].starts_with("  0  all    4 Mbit/s [#########        ]"));
    CHECK(lines[7].starts_with("  0    0    2 Mbit/s [####             ]"));
    CHECK_THAT(lines[7], Catch::Contains("<1.02us <4.10us"));
    CHECK(lines[8].starts_with("  0    1     0 bit/s [                 ]"));
    CHECK(lines[11].starts_with("  - rest     0 bit/s"));
}

TEST_CASE("idle bands go first where there is no room, then the last ones") {
    const auto idle = top_lines(view_with(60), {80, 24});
    REQUIRE(idle.size() == 6 + 5);
    CHECK(idle[8].starts_with("  0   59"));
    CHECK(idle.back() == "... and 58 classes more");

    TopView busy = view_with(60);
    for (netlink::Class& one : busy.delta.classes)
        one.statistics.bytes = 1000;
    const auto cut = top_lines(busy, {80, 24});
    CHECK(cut.size() == 24);
    CHECK(cut.back() == "... and 45 classes more");
    CHECK(top_lines(busy, {80, 100}).size() == 6 + 62);
    CHECK_FALSE(any_contains(top_lines(busy, {80, 100}), "more"));
}

TEST_CASE("any size of terminal") {
    const TopView view = view_with(30);
    for (std::size_t columns = 1; columns < 200; columns += 7) {
        for (std::size_t lines = 1; lines < 60; lines += 5)
            CHECK(top_lines(view, {columns, lines}).size() <= std::max<std::size_t>(lines, 8));
    }
    const auto wide = top_lines(view, {120, 40});
    CHECK(wide[6].size() == 120);
}

TEST_CASE("without a rate bars are parts of what is sent") {
    TopView view = view_with(2);
    view.total.qdisc.options->rate = 0;
    const auto lines = top_lines(view, {80, 24});
    CHECK(lines[1].starts_with("sent 4 Mbit/s of none [################]"));
    CHECK_THAT(lines[7], Catch::Contains("[#########        ]"));
}

TEST_CASE("a name cannot change the terminal") {
    TopView view = view_with(1);
    view.device = "e\033[2J";
    CHECK(any_contains(top_lines(view, {80, 24}), "e\\x1b[2J"));
}
