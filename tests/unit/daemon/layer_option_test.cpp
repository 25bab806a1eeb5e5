// SPDX-License-Identifier: MIT
#include "daemon/layer_option.hpp"

#include <map>

#include <catch2/catch.hpp>

#include "running_daemon.hpp"

using namespace mercury;
using namespace mercury::daemon;

namespace {

using Key = std::pair<std::uint32_t, unsigned>;  // user and job
using Allowed = std::map<Key, std::vector<bpf::LayerClass>>;

class FakePrograms : public bpf::LayerPrograms {
  public:
    explicit FakePrograms(Allowed& allowed) : allowed_(allowed) {}
    ~FakePrograms() override { allowed_.clear(); }
    FakePrograms(const FakePrograms&) = delete;
    FakePrograms& operator=(const FakePrograms&) = delete;

    Result<void> allow(std::uint32_t user, unsigned number,
                       const std::vector<bpf::LayerClass>& classes) override {
        allowed_[{user, number}] = classes;
        return {};
    }
    void forbid(std::uint32_t user, unsigned number) override { allowed_.erase({user, number}); }
    std::uint64_t sockets() const override { return 7; }

  private:
    Allowed& allowed_;
};

struct Rig {
    Allowed allowed;
    bool refuses = false;
    DscpOfClass dscp{34, 10};
    LayerOption option{
        dscp, [this]() -> Result<std::unique_ptr<bpf::LayerPrograms>> {
            if (refuses)
                return Error{"no"};
            return std::unique_ptr<bpf::LayerPrograms>(std::make_unique<FakePrograms>(allowed));
        }};
    Registry registry{16, [](unsigned /*number*/, const Deadlines& /*deadlines*/) {},
                      [this](const Job& job) { return option.changed(job); }};
    Limits limits;
    User user{1000, limits};

    Member& declare(std::size_t layers = 4, Member* before = nullptr) {
        hints::DeclareJob job = four_layers();
        job.layers.resize(layers);
        return *std::get<Member*>(registry.declare(user, job, before));
    }
};

}  // namespace

TEST_CASE("a job's layers can be had as long as it is there", "[layer option]") {
    Rig rig;
    rig.option.configure(true, rig.registry.jobs());
    CHECK(rig.option.state() == "on");
    Member& member = rig.declare();
    REQUIRE(rig.allowed.size() == 1);
    const auto& classes = rig.allowed.at({1000, 1});
    REQUIRE(classes.size() == 2);
    CHECK(classes[0].last_layer == member.plan[0].layers.last);
    CHECK(classes[1].last_layer == 3);
    CHECK(classes[0].marking == Marking{0x10001, 1, 34, {}});
    CHECK(classes[1].marking == Marking{0x10002, 2, 10, {}});
    rig.registry.leave(member);
    CHECK(rig.allowed.empty());
}

TEST_CASE("a job says whether its members can use the option", "[layer option]") {
    Rig rig;
    CHECK_FALSE(rig.declare().job->has_option);
    rig.option.configure(true, rig.registry.jobs());
    CHECK(rig.declare().job->has_option);
}

TEST_CASE("what was declared last counts", "[layer option]") {
    Rig rig;
    rig.option.configure(true, rig.registry.jobs());
    Member& first = rig.declare();
    Member& second = rig.declare(2);
    CHECK(rig.allowed.at({1000, 1}).back().last_layer == 1);
    rig.registry.leave(second);
    CHECK(rig.allowed.at({1000, 1}).back().last_layer == 3);
    rig.declare(3, &first);
    CHECK(rig.allowed.at({1000, 1}).back().last_layer == 2);
}

TEST_CASE("it can be switched on and off while there are jobs", "[layer option]") {
    Rig rig;
    rig.declare();
    CHECK(rig.allowed.empty());
    CHECK(rig.option.state() == "off");
    CHECK(rig.option.sockets() == 0);
    rig.option.configure(true, rig.registry.jobs());
    CHECK(rig.allowed.size() == 1);
    CHECK(rig.option.sockets() == 7);
    rig.option.configure(false, rig.registry.jobs());
    CHECK(rig.allowed.empty());
    rig.refuses = true;
    rig.option.configure(true, rig.registry.jobs());
    CHECK(rig.option.state() == "no");
}
