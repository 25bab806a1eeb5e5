// SPDX-License-Identifier: MIT
//
// Where Prometheus asks. HTTP is spoken by prometheus-cpp's exposer, in threads of its own that
// have nothing but a socket to the kernel: whoever is slow or hostile there can keep others from
// asking, and nobody else from anything. The reactor is asked once for each answer.
#pragma once

#include <functional>
#include <memory>

#include "common/reactor.hpp"
#include "common/result.hpp"
#include "daemon/metrics.hpp"
#include "daemon/settings.hpp"
#include "netlink/kernel.hpp"

namespace prometheus {
class Exposer;
}

namespace mercury::daemon {

class MetricsServer {
  public:
    /// Opens the kernel for one answer, in the thread that gives it.
    using OpenKernel = std::function<Result<std::unique_ptr<netlink::Kernel>>()>;
    /// Called in the reactor's thread.
    using MakeReport = std::function<Report()>;

    /// REACTOR outlives it, and is run by the thread that makes and destroys it.
    MetricsServer(Reactor& reactor, OpenKernel open_kernel, MakeReport report);
    MetricsServer(const MetricsServer&) = delete;
    MetricsServer& operator=(const MetricsServer&) = delete;
    /// Waits for answers underway, two seconds at most.
    ~MetricsServer();

    /// Once; on the port that it returns.
    Result<int> listen(const MetricsSettings& settings);

  private:
    class Collector;

    Reactor& reactor_;
    std::shared_ptr<Collector> collector_;
    std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace mercury::daemon
