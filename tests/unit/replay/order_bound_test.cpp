// SPDX-License-Identifier: MIT
#include "replay/order_bound.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

#include "layers/models.hpp"

using namespace mercury;
using namespace mercury::replay;
using namespace std::chrono_literals;

namespace {

/// A worker and an ideal network: it sends what is needed first, without a packet in between.
class Ideal {
  public:
    Ideal(const Profile& profile, double wire_ns) : profile_(profile) {
        for (const Layer& layer : profile.layers) {
            wire_.push_back(static_cast<double>(layer.bytes) /
                            static_cast<double>(profile.bytes()) * wire_ns);
        }
        unsent_.resize(wire_.size());
    }

    double iteration() {
        const double start = now_;
        for (std::size_t i = 0; i < wire_.size(); ++i) {
            while (unsent_[i] > 0)
                send(unsent_[i]);
            send(static_cast<double>(profile_.layers[i].forward.count()));
        }
        for (std::size_t i = wire_.size(); i-- > 0;) {
            send(static_cast<double>(profile_.layers[i].backward.count()));
            unsent_[i] = wire_[i];
        }
        return now_ - start;
    }

  private:
    void send(double time) {
        now_ += time;
        for (double& left : unsent_) {
            const double sent = std::min(left, time);
            left -= sent;
            time -= sent;
        }
    }

    const Profile& profile_;
    double now_ = 0;
    std::vector<double> wire_;    // time of each layer
    std::vector<double> unsent_;  // time
};

}  // namespace

TEST_CASE("the order bound adds what cannot overlap", "[order_bound]") {
    // One layer: nothing overlaps.
    CHECK(order_bound({"", "", {{"a", 100ms, 200ms, 8}}}, 1s) == 1300ms);
    // Layers a and b are ready, or needed, when everything is computed.
    CHECK(order_bound({"", "", {{"a", 0s, 0s, 2}, {"b", 1s, 1s, 1}, {"c", 1s, 1s, 1}}}, 400ms) ==
          4300ms);
    // The wire is idle while layer b computes.
    CHECK(order_bound({"", "", {{"a", 0ms, 0ms, 8}, {"b", 1s, 2s, 0}}}, 1s) == 4s);
    // Nothing but the small parts sticks out.
    CHECK(order_bound({"", "", {{"a", 1s, 2s, 1}, {"b", 0ms, 0ms, 9}}}, 1s) == 3100ms);
}

TEST_CASE("the order bound is what an ideal network attains", "[order_bound]") {
    for (const BuiltinModel& entry : builtin_models()) {
        const auto profile = model_by_name(entry.name, {});
        REQUIRE(profile);
        for (const double ratio : {0.25, 0.5, 1.0, 2.0, 4.0}) {  // wire to compute
            INFO(entry.name << ' ' << ratio);
            const double compute = static_cast<double>(profile.value().compute().count());
            const auto bound = static_cast<double>(
                order_bound(profile.value(),
                            std::chrono::nanoseconds(std::llround(ratio * compute)))
                    .count());
            CHECK(bound >= std::max(1.0, ratio) * compute - 1);

            Ideal ideal(profile.value(), ratio * compute);
            double time = 0;
            for (int i = 0; i < 10; ++i)
                time = ideal.iteration();
            CHECK(time == Approx(bound).epsilon(1e-6));
        }
    }
}
