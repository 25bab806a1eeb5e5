// SPDX-License-Identifier: MIT
//
// How the strategies get their connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "common/result.hpp"
#include "replay/communicator.hpp"
#include "replay/network.hpp"
#include "replay/sockets.hpp"
#include "replay/strategy_parameters.hpp"

namespace mercury::replay {

/// Connects two hosts.
using Connector =
    std::function<Result<Connection>(std::size_t from, std::size_t to, const Endpoint&)>;

/// NETWORK must outlive what is returned.
Connector in_network(const Network& network);

/// Every host is this one, and the kernel chooses the ports.
Connector over_loopback();

/// A strategy that does everything over the sockets it is given.
class SocketStrategy : public Strategy {
  public:
    Result<std::unique_ptr<Exchange>> connect(const Job& job, const Network& network) final {
        return connect_by(job, in_network(network));
    }
    virtual Result<std::unique_ptr<Exchange>> connect_by(const Job& job,
                                                         const Connector& connector) = 0;
};

/// How a job stands to what else is in the network.
enum class Marking {
    none,      // unmarked, as every vanilla system
    job,       // its own job in sch_mercury, all of it in one class
    job_rank,  // as job, but jobs are classes of one job, in strict order: the lowest number first
};

/// What the connections of a strategy have in common.
struct LinkOptions {
    Marking marking = Marking::none;
    std::uint64_t window = 0;  // bytes in flight a connection at most, 0: the kernel adapts it
};

/// The parameters `window` and `mark`, which every strategy has; `mark` is left out if MARKING
/// already says it.
LinkOptions read_link_options(ParameterReader& reader, Marking marking = Marking::none);

/// Makes the connections of one job, each at its own port.
class Linker {
  public:
    Linker(const Job& job, const Connector& connector, const LinkOptions& options);

    /// FROM connects; either may send. With LATE both ends take only what they can soon send.
    Result<Connection> link(std::size_t from, std::size_t to, bool late);

  private:
    const Job& job_;
    const Connector& connector_;
    LinkOptions options_;
    Endpoint endpoint_;
    std::size_t links_ = 0;
};

}  // namespace mercury::replay
