// SPDX-License-Identifier: MIT
//
// The client's side of the hint protocol; mercury.h is the same for programs outside of this tree
// and tells what each call does.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include <sys/types.h>

#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "hints/message_socket.hpp"
#include "hints/protocol.hpp"

namespace mercury::hints {

/// Those of enum mercury_outcome.
enum class Outcome : int {
    Done = 0,
    Fallback = 1,
    Pending = 2,
    Argument = -1,
    Memory = -2,
    Order = -3,
    Socket = -4,
    Busy = -5,
    Refused = -6,
    Forked = -7,
};

/// Where a daemon is looked for: what MERCURY_SOCKET says, or else the usual place.
std::string socket_path();

class Client {
  public:
    explicit Client(std::string path);
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    ~Client();

    void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

    Outcome declare(DeclareJob job);
    Outcome assign(int fd, std::size_t layer, std::uint32_t lowat);
    Outcome step();
    Outcome dispatch(std::chrono::milliseconds patience);

    std::size_t classes() const { return classes_.size(); }
    /// Nothing if the job has no such layer.
    std::optional<std::size_t> class_of(std::size_t layer) const;

    int fd() const { return socket_ ? socket_.get() : -1; }
    /// Also for what could not be sent yet.
    bool wants_to_send() const { return socket_ && blocked_; }

    bool connected() const { return declared_; }
    /// Why not.
    const std::string& why() const { return why_; }
    unsigned job_number() const { return number_.value_or(0); }
    std::size_t sockets() const { return sockets_.size(); }
    std::size_t marked() const;
    /// Of the last call that failed.
    const std::string& error() const { return error_; }

    Outcome fail(Outcome outcome, std::string message);
    /// Whether this process made it.
    bool forked() const;

  private:
    /// A socket of the program, by its descriptor.
    struct Socket {
        std::uint64_t cookie = 0;
        std::size_t layer = 0;
        std::optional<std::uint32_t> mark;  // that the daemon has set
    };
    /// What the daemon has still to answer.
    struct Asked {
        std::size_t request = 0;  // its index in Request
        int fd = -1;              // of an Assign
        std::uint64_t cookie = 0;
    };

    void connect_if_due();
    /// An error says why not.
    Result<void> connect();
    void disconnect(std::string why);
    bool ask(const Request& request, int fd = -1, std::uint64_t cookie = 0);
    void receive_answers();
    void answered(const Asked& asked, const Answer& answer);
    void assigned(const Asked& asked, const Answer& answer);
    Result<void> adopt(const JobDeclared& job);
    void adopt_marks();
    void take_up_idle();
    bool mark_by_option(int fd, const Socket& socket);
    void send_again();
    /// Until CONDITION, or the time is over, or the connection.
    template <typename Condition>
    void pump(std::chrono::milliseconds patience, const Condition& condition);
    /// As long as the daemon is to be waited for.
    template <typename Condition>
    void await(const Condition& condition);
    std::optional<Socket> remembered(int fd) const;
    Outcome ask_to_mark(int fd, std::uint64_t cookie);

    const std::string path_;
    const pid_t process_;
    std::chrono::milliseconds timeout_{1000};

    std::optional<DeclareJob> job_;
    std::vector<JobClass> classes_;  // the daemon's, or what this process planned
    std::unordered_map<int, Socket> sockets_;
    std::deque<int> to_send_;  // sockets that the daemon has yet to hear of
    std::vector<int> busy_;    // to be sent again once they are idle

    Fd socket_;
    Packet packet_;
    std::deque<Asked> asked_;
    bool blocked_ = false;            // the daemon has not read what was sent before
    bool told_ = false;               // of the job
    bool declared_ = false;           // the daemon knows it
    bool has_option_ = false;         // and the kernel, for MERCURY_SO_LAYER
    bool slow_ = false;               // it has not answered in time
    std::optional<unsigned> number_;  // of the job, also after the connection is lost
    std::string why_ = "no job has been declared";
    Clock::time_point next_try_{};
    std::chrono::milliseconds backoff_{0};

    // Of the assignment that a call waits for.
    std::optional<Answer> awaited_;
    std::uint64_t awaited_cookie_ = 0;

    std::string error_;
};

}  // namespace mercury::hints
