// SPDX-License-Identifier: MIT
//
// Random configuration under random traffic: see the help text.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "invariants.hpp"
#include "netlink.hpp"
#include "operations.hpp"
#include "random.hpp"
#include "senders.hpp"
#include "world.hpp"

namespace fuzz {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto patience = 120s;             // a debug kernel is slow
constexpr std::uint64_t checks_every = 20;  // operations, with the senders paused
constexpr std::uint64_t reports_every = 2000;
constexpr std::uint64_t operations_per_world = 400;

struct Settings {
    std::uint64_t operations = 2000;
    std::uint64_t seed = std::random_device{}();
    std::uint64_t world = 0;
};

struct Totals {
    std::uint64_t operations = 0;
    std::uint64_t worlds = 0;
    std::uint64_t reloads = 0;
    std::uint64_t sent = 0;
    std::uint64_t checks = 0;  // of a still qdisc
    std::uint64_t accepted = 0;
    std::uint64_t refused = 0;
};

void wait_until(const std::string& what, const std::function<bool()>& condition) {
    const auto end = Clock::now() + patience;
    while (!condition()) {
        if (Clock::now() > end) {
            throw Violation("in vain waited until " + what);
        }
        std::this_thread::sleep_for(10ms);
    }
}

/// A world with traffic, and an administrator who cannot leave its qdisc alone.
class Round {
  public:
    Round(std::uint64_t seed, std::uint64_t number, Totals& totals)
        : totals_(totals),
          random_(seed * 1000003 + number),
          world_(random_.pick(trees())),
          inside_(world_.sender()),
          operations_(random_, world_.ifindex(), world_.tree().parent),
          senders_(world_, random_) {}

    void run(std::uint64_t count) {
        for (std::uint64_t i = 1; i <= count; ++i) {
            apply(operations_.next());
            look();
            if (random_.chance(20)) {
                std::this_thread::sleep_for(std::chrono::microseconds(random_.below(5000)));
            }
            if (i % checks_every == 0) {
                senders_.pause();
                check_still();
                senders_.resume();
            }
        }
        end();
        totals_.sent += senders_.sent();
    }

    std::string where() const {
        return fmt::format("below {}, after '{}'", world_.tree().name, last_);
    }

  private:
    void apply(Operation operation) {
        last_ = operation.name;
        ++totals_.operations;
        const int error = route_.request(operation.message);
        ++(error ? totals_.refused : totals_.accepted);
        if ((operation.answer == Answer::accepted && error) ||
            (operation.answer == Answer::refused && !error)) {
            throw Violation(error ? std::strerror(error) : "was accepted");
        }
    }

    /// True: the qdisc stood still, and all is well.
    bool look() {
        if (!operations_.has_mercury()) {
            return true;
        }
        const Look seen = look_at(route_, world_.ifindex(), operations_.handle());
        if (!seen.is_still()) {
            return false;
        }
        try {
            check(seen, operations_.handle(), operations_.has_first_child());
        } catch (const Violation& violation) {
            throw Violation(violation.what() + describe(seen));
        }
        ++totals_.checks;
        return true;
    }

    void check_still() {
        wait_until("the qdisc stands still without senders", [this] { return look(); });
    }

    /// One of the ways in which a device and its qdiscs go, with all that is queued.
    void end() {
        constexpr Ending endings[] = {Ending::drained, Ending::drained, Ending::device_deleted,
                                      Ending::root_deleted, Ending::namespace_dropped};
        switch (random_.pick(endings)) {
            case Ending::drained:
                senders_.stop();
                open();
                drain();
                break;
            case Ending::device_deleted:
                world_.delete_device();
                break;
            case Ending::root_deleted:
                world_.delete_root();
                break;
            case Ending::namespace_dropped:
                // It lasts as long as a socket has a packet in it.
                open();
                world_.drop_names();
                break;
        }
        senders_.stop();
    }

    void open() {
        apply(operations_.up());
        if (operations_.has_mercury()) {
            apply(operations_.open());
        }
    }

    void drain() {
        try {
            wait_until("all qdiscs are empty",
                       [this] { return is_empty(route_.qdiscs(world_.ifindex())); });
        } catch (const Violation& violation) {
            const Look left = look_at(route_, world_.ifindex(), operations_.handle());
            throw Violation(violation.what() + describe(left));
        }
        check_still();
    }

    Totals& totals_;
    Random random_;
    World world_;
    Inside inside_;
    Route route_;
    Operations operations_;
    Senders senders_;
    std::string last_;
};

/// Round after round, until there were enough operations; throws Violation.
void run(const Settings& settings, Totals& totals) {
    Random random(settings.seed);
    const int users = module_users();
    std::uint64_t next_report = reports_every;
    for (std::uint64_t number = settings.world; totals.operations < settings.operations; ++number) {
        {
            Round round(settings.seed, number, totals);
            try {
                round.run(std::min(settings.operations - totals.operations, operations_per_world));
            } catch (const Violation& violation) {
                throw Violation(
                    fmt::format("world {}, {}: {}", number, round.where(), violation.what()));
            }
        }
        ++totals.worlds;
        wait_until(fmt::format("the qdiscs of world {} are gone", number),
                   [users] { return module_users() <= users; });
        totals.reloads += users == 0 && random.chance(20) && reload_module();
        if (totals.operations >= next_report) {
            next_report += reports_every;
            fmt::print("{} operations in {} worlds, {} packets\n", totals.operations, totals.worlds,
                       totals.sent);
        }
    }
}

constexpr const char* help =
    "Sends random requests to a mercury, valid, borderline and corrupted, while TCP, UDP, GSO,\n"
    "VLAN, IPv6 and other packets, marked and not, run through it: at the root of a device and\n"
    "below other qdiscs, above all sorts of children. Devices go down and up and away, namespaces\n"
    "are deleted, the module is reloaded. After each request its statistics must add up.\n\n"
    "For a kernel of its own: scripts/testbed/uml -- build/userspace/tests/fuzz/qdisc_fuzz\n"
    "Requests are a function of the seed; how they meet with packets is not.\n"
    "Exit status: 0, or 1 with a sentence about what is wrong.";

int fuzz(int argc, char** argv) {
    Settings settings;
    CLI::App app(help, "qdisc_fuzz");
    app.add_option("--operations", settings.operations, "how many requests")->capture_default_str();
    app.add_option("--seed", settings.seed, "of everything random (default: any)");
    app.add_option("--world", settings.world, "begin with this one, to repeat what it showed")
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    if (module_users() < 0) {
        fmt::print(stderr, "qdisc_fuzz: sch_mercury is not loaded: use scripts/testbed/uml\n");
        return 1;
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    fmt::print("seed {}\n", settings.seed);
    Totals totals;
    int status = 0;
    try {
        run(settings, totals);
    } catch (const std::exception& error) {
        fmt::print(stderr, "qdisc_fuzz: seed {}, {}\n", settings.seed, error.what());
        status = 1;
    }
    fmt::print(
        "{} operations ({} accepted, {} refused) in {} worlds, {} checks, {} packets, "
        "{} reloads, seed {}: {}\n",
        totals.operations, totals.accepted, totals.refused, totals.worlds, totals.checks,
        totals.sent, totals.reloads, settings.seed, status ? "FAILED" : "all is well");
    return status;
}

}  // namespace
}  // namespace fuzz

int main(int argc, char** argv) {
    return fuzz::fuzz(argc, argv);
}
