// SPDX-License-Identifier: MIT
//
// All of mercuryd but its process: what joins clients, jobs and the kernel.
#pragma once

#include <cstdint>

#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "daemon/layer_option.hpp"
#include "daemon/metrics.hpp"
#include "daemon/network.hpp"
#include "daemon/registry.hpp"
#include "daemon/rules.hpp"
#include "daemon/server.hpp"
#include "daemon/settings.hpp"
#include "netlink/kernel.hpp"

namespace mercury::daemon {

class Daemon {
  public:
    /// REACTOR and KERNEL outlive it. LISTENER is a UNIX seqpacket socket.
    Daemon(Settings settings, Fd listener, Reactor& reactor, netlink::Kernel& kernel);
    Daemon(const Daemon&) = delete;
    Daemon& operator=(const Daemon&) = delete;

    Result<void> start();
    /// Jobs stay as they are. The socket is that of the start.
    void configure(Settings settings);
    const Settings& settings() const { return settings_; }

    /// For the user UID: its own jobs, or all.
    hints::Status status(std::uint32_t uid) const;
    /// All that is known.
    Report report() const;

  private:
    hints::Status status_of(std::optional<std::uint32_t> uid) const;

    Settings settings_;
    Reactor& reactor_;
    Clock::time_point started_ = Clock::now();
    Network network_;
    LayerOption layer_option_;
    Registry registry_;
    Server server_;
    Rules rules_;
};

/// Listens at PATH, where no other daemon may; everybody may connect.
Result<Fd> listen_at(const std::string& path);

}  // namespace mercury::daemon
