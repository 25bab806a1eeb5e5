// SPDX-License-Identifier: MIT
//
// A whole daemon in a thread, over a kernel in memory, and clients that may send anything.
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "daemon/daemon.hpp"
#include "daemon/lane.hpp"
#include "hints/protocol.hpp"
#include "netlink/fake_kernel.hpp"

namespace mercury::daemon {

class RunningDaemon {
  public:
    explicit RunningDaemon(Settings settings = {});
    RunningDaemon(const RunningDaemon&) = delete;
    RunningDaemon& operator=(const RunningDaemon&) = delete;
    ~RunningDaemon();

    const std::string& path() const { return path_; }
    /// WORK(daemon, kernel) in its thread; returns when it is done.
    void in_thread(const std::function<void(Daemon&, netlink::FakeKernel&)>& work);
    hints::Status status();
    /// Ends and comes again at the same place.
    void restart();
    void stop();
    void start();

  private:
    struct Instance;

    Settings settings_;
    std::string path_;
    std::unique_ptr<Instance> instance_;
};

/// A connection that keeps to nothing.
class Wire {
  public:
    explicit Wire(const RunningDaemon& daemon);

    /// Whether it went out; waits for room, for some seconds.
    bool send(std::string_view bytes, std::initializer_list<int> descriptors = {});
    bool send_many(std::string_view bytes, const std::vector<int>& descriptors);
    /// "" if the daemon has hung up. Fails the test if nothing comes.
    std::string receive();
    hints::Answer answer();
    hints::Answer ask(std::string_view bytes, std::initializer_list<int> descriptors = {});
    hints::Answer ask(const hints::Request& request, std::initializer_list<int> descriptors = {});
    /// Says hello, and declares four equal layers in two classes.
    hints::JobDeclared declare(const std::string& name = "net");

    const Fd& fd() const { return socket_; }

  private:
    Fd socket_;
};

hints::Code code_of(const hints::Answer& answer);

hints::DeclareJob four_layers(const std::string& name = "net");

Fd tcp_socket();

/// Two ends of a TCP connection over loopback.
std::pair<Fd, Fd> tcp_pair();

std::uint32_t mark_of(const Fd& socket);
int priority_of(const Fd& socket);

/// Whether this process may set SO_MARK; says so if it may not, and what is not tested.
bool can_mark();

std::size_t open_descriptors();

/// Waits until CONDITION holds, for many seconds if need be.
bool comes_true(const std::function<bool()>& condition);
/// The test fails if it does not.
void eventually(const std::function<bool()>& condition);

}  // namespace mercury::daemon
