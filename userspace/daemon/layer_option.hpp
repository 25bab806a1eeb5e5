// SPDX-License-Identifier: MIT
//
// The socket option of mercury.h, for the jobs that there are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "bpf/layer_programs.hpp"
#include "daemon/registry.hpp"
#include "daemon/session.hpp"

namespace mercury::daemon {

class LayerOption {
  public:
    using Load = std::function<Result<std::unique_ptr<bpf::LayerPrograms>>()>;

    /// DSCP outlives it, and may change before configure().
    explicit LayerOption(const DscpOfClass& dscp, Load load = bpf::LayerPrograms::load);
    LayerOption(const LayerOption&) = delete;
    LayerOption& operator=(const LayerOption&) = delete;

    void configure(bool wanted, const std::list<Job>& jobs);
    /// JOB is new, or its layers are; the last who declared them counts. Without a member it is
    /// about to go. Whether its members can use the option now.
    bool changed(const Job& job);

    std::uint64_t sockets() const { return programs_ ? programs_->sockets() : 0; }
    /// "off", "on", or why it is not.
    const std::string& state() const { return state_; }

  private:
    const DscpOfClass& dscp_;
    Load load_;
    std::unique_ptr<bpf::LayerPrograms> programs_;
    std::string state_ = "off";
};

}  // namespace mercury::daemon
