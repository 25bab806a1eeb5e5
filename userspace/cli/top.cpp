// SPDX-License-Identifier: MIT
#include "cli/top.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include <sys/epoll.h>
#include <unistd.h>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "cli/repeat.hpp"
#include "cli/rows.hpp"
#include "cli/text.hpp"
#include "common/logging.hpp"
#include "common/units.hpp"

namespace mercury::cli {
namespace {

using netlink::Class;
using netlink::MercuryStatistics;

// JOB BAND RATE BAR QLEN BACKLOG P50 P99 MISS/s: 80 columns with a bar of 19.
constexpr std::size_t columns_without_bar = 61;
constexpr std::size_t bar_min = 8;
constexpr std::size_t lines_above = 6;

/// A part of LENGTH, "[####      ]", never empty for something and never full for less than all.
std::string bar(double part, std::size_t length) {
    const auto inside = static_cast<double>(length - 2);
    const double filled = part <= 0 ? 0
                                    : std::clamp(std::floor(part * inside + 0.5), 1.0,
                                                 part < 1 ? inside - 1 : inside);
    const auto count = static_cast<std::size_t>(filled);
    return fmt::format("[{}{}]", std::string(count, '#'), std::string(length - 2 - count, ' '));
}

std::uint64_t capacity(const TopView& view) {
    const auto rate = view.total.qdisc.options ? view.total.qdisc.options->rate.value_or(0) : 0;
    const double seconds = std::chrono::duration<double>(view.interval).count();
    const auto bytes = static_cast<std::uint64_t>(static_cast<double>(rate) * seconds);
    return bytes != 0 ? bytes : view.delta.qdisc.statistics.bytes;
}

double part_of(std::uint64_t bytes, std::uint64_t all) {
    return all == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(all);
}

std::string class_line(const Class& one, const TopView& view, std::size_t bar_length) {
    const ClassRow row = row_of(one);
    const auto& statistics = one.statistics;
    return fmt::format("{:>3} {:>4} {:>11} {} {:>6} {:>9} {:>7} {:>7} {:>6}", row.job, row.band,
                       rate_text(statistics.bytes, view.interval),
                       bar(part_of(statistics.bytes, capacity(view)), bar_length), statistics.qlen,
                       bytes_text(statistics.backlog), quantile_text(row.sojourn, 0.50),
                       quantile_text(row.sojourn, 0.99),
                       row.missed ? frequency_text(*row.missed, view.interval) : "-");
}

bool is_idle_band(const Class& one) {
    return options_of(one).band && one.statistics.bytes == 0 && one.statistics.qlen == 0 &&
           one.statistics.drops == 0;
}

/// Those that are shown in so many lines, in their order.
std::vector<const Class*> chosen(const std::vector<Class>& classes, std::size_t room) {
    std::vector<const Class*> all;
    all.reserve(classes.size());
    for (const Class& one : classes)
        all.push_back(&one);
    if (all.size() > room)
        std::erase_if(all, [](const Class* one) { return is_idle_band(*one); });
    if (all.size() > room)
        all.resize(room);
    return all;
}

std::vector<std::string> head(const TopView& view) {
    const auto& now = view.total.qdisc;
    const auto& sent = view.delta.qdisc.statistics;
    const MercuryStatistics total = now.mercury.value_or(MercuryStatistics{});
    const MercuryStatistics delta = view.delta.qdisc.mercury.value_or(MercuryStatistics{});
    const netlink::MercuryOptions options = now.options.value_or(netlink::MercuryOptions{});
    const auto often = [&](const std::optional<std::uint64_t>& count) {
        return frequency_text(count.value_or(0), view.interval);
    };
    return {
        fmt::format("mercuryctl top  {} {} ({} of {})  jobs active {} of {}  n: next, q: quit",
                    printable(view.device), to_string(now.handle), view.number, view.of,
                    total.active_jobs.value_or(0), options.jobs.value_or(0)),
        fmt::format("sent {} of {} {}  {} packets/s", rate_text(sent.bytes, view.interval),
                    limit_text(now), bar(part_of(sent.bytes, capacity(view)), 18),
                    frequency_text(sent.packets, view.interval)),
        fmt::format("queued {} packets, {}  memory {} of {}, peak {}", now.statistics.qlen,
                    bytes_text(now.statistics.backlog), bytes_text(total.memory.value_or(0)),
                    bytes_text(options.memory_limit.value_or(0)),
                    bytes_text(total.memory_peak.value_or(0))),
        fmt::format("each second: dropped {}  missed {}  rescued {}  CE {}  ACKs first {}",
                    frequency_text(sent.drops, view.interval), often(delta.missed),
                    often(delta.rescued), often(delta.ce_marks), often(delta.acks)),
        "",
    };
}

/// What can be shown of NOW, each with what has happened since EARLIER.
std::vector<TopView> views_of(const Snapshot& earlier, const Snapshot& now) {
    const Snapshot delta = since(earlier, now);
    std::vector<TopView> views;
    for (std::size_t i = 0; i < now.devices.size(); ++i) {
        const DeviceState& device = now.devices[i];
        for (std::size_t j = 0; j < device.mercury.size(); ++j) {
            views.push_back({device.link.name, device.mercury[j], delta.devices[i].mercury[j],
                             now.when - earlier.when, views.size() + 1, 1});
        }
    }
    for (TopView& view : views)
        view.of = views.size();
    return views;
}

class Top {
  public:
    Top(netlink::Kernel& kernel, const Terminal& terminal, Snapshot first, std::size_t shown)
        : kernel_(kernel), terminal_(terminal), earlier_(std::move(first)), shown_(shown) {}

    Result<void> refresh() {
        auto now = read_snapshot(kernel_);
        if (!now)
            return now.error();
        views_ = views_of(earlier_, now.value());
        earlier_ = std::move(now).value();
        draw();
        return {};
    }

    void next() {
        ++shown_;
        draw();
    }

    void draw() {
        if (views_.empty()) {
            terminal_.show({"mercuryctl top  q: quit", "", "no mercury qdisc here"});
            return;
        }
        shown_ %= views_.size();
        terminal_.show(top_lines(views_[shown_], terminal_.size()));
    }

  private:
    netlink::Kernel& kernel_;
    const Terminal& terminal_;
    Snapshot earlier_;
    std::vector<TopView> views_;
    std::size_t shown_;
};

/// False if it says to end.
bool read_keys(Top& screen) {
    std::array<char, 64> keys{};
    const ssize_t count = read(STDIN_FILENO, keys.data(), keys.size());
    for (const char key :
         std::string_view(keys.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)))) {
        if (key == 'q' || key == 'Q')
            return false;
        if (key == 'n' || key == 'N' || key == '\t')
            screen.next();
    }
    return count > 0;
}

}  // namespace

std::vector<std::string> top_lines(const TopView& view, Size size) {
    const std::size_t bar_length =
        std::max(size.columns, columns_without_bar + bar_min) - columns_without_bar;
    auto lines = head(view);
    lines.push_back(fmt::format("{:>3} {:>4} {:>11} {:<{}} {:>6} {:>9} {:>7} {:>7} {:>6}", "JOB",
                                "BAND", "RATE", " OF THE LINK", bar_length, "QLEN", "BACKLOG",
                                "P50", "P99", "MISS/s"));
    lines.back() = lines.back().substr(0, size.columns);
    const std::size_t room = std::max(size.lines, lines_above + 2) - lines.size();
    const auto& classes = view.delta.classes;
    const bool all_fit = classes.size() <= room;
    const auto shown = chosen(classes, all_fit ? room : room - 1);
    for (const Class* one : shown)
        lines.push_back(class_line(*one, view, bar_length));
    if (shown.size() < classes.size())
        lines.push_back(fmt::format("... and {} classes more", classes.size() - shown.size()));
    return lines;
}

Result<void> top(netlink::Kernel& kernel, const std::string& device,
                 std::chrono::nanoseconds interval) {
    // Of all devices, since others can be chosen; but what was asked for must be there.
    if (auto asked = read_snapshot(kernel, device); !asked)
        return asked.error();
    auto first = read_snapshot(kernel);
    if (!first)
        return first.error();
    const auto views = views_of(first.value(), first.value());
    const auto begin = std::ranges::find_if(
        views, [&](const TopView& view) { return device.empty() || view.device == device; });
    if (begin == views.end())
        return Error{device.empty() ? "no device has a mercury qdisc"
                                    : fmt::format("{} has no mercury qdisc", printable(device))};
    const auto terminal = Terminal::open();
    if (!terminal)
        return terminal.error();

    Reactor reactor;
    Top screen(kernel, *terminal.value(), std::move(first).value(),
               static_cast<std::size_t>(begin - views.begin()));
    auto watched = reactor.watch(STDIN_FILENO, EPOLLIN, [&](std::uint32_t /*events*/) {
        if (!read_keys(screen))
            reactor.stop();
        return Result<void>{};
    });
    if (!watched)
        return watched;
    watched =
        reactor.watch(terminal.value()->resized().get(), EPOLLIN, [&](std::uint32_t /*events*/) {
            terminal.value()->taken();
            screen.draw();
            return Result<void>{};
        });
    if (!watched)
        return watched;
    return repeat(reactor, interval, 0, [&] { return screen.refresh(); });
}

}  // namespace mercury::cli
