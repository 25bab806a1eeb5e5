// SPDX-License-Identifier: MIT
#include "transport/job_hints.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace mercury::transport {
namespace {

hints::DeclareJob declaration(const std::string& job, const std::vector<std::uint64_t>& bytes) {
    hints::DeclareJob declared{job, {}, 2 * bytes.size(), {}};
    for (const char* const way : {"pull", "push"}) {
        for (std::size_t c = 0; c < bytes.size(); ++c) {
            // A server may have nothing of a class.
            const std::uint64_t some = std::clamp<std::uint64_t>(bytes[c], 1, layer_bytes_max);
            declared.layers.push_back({fmt::format("{} {}", way, c), {}, {}, some});
        }
    }
    return declared;
}

}  // namespace

JobHints::JobHints(const std::string& path, const std::string& job,
                   const std::vector<std::uint64_t>& bytes, std::chrono::milliseconds patience,
                   Changed changed)
    : client_(path.empty() ? hints::socket_path() : path), changed_(std::move(changed)) {
    client_.set_timeout(patience);
    const auto outcome = client_.declare(declaration(job, bytes));
    if (outcome < hints::Outcome::Done)
        impossible_ = client_.error();
    look(outcome);
}

void JobHints::assign(const Fd& socket, std::size_t layer) {
    look(client_.assign(socket.get(), layer, 0));
}

void JobHints::begin(std::uint64_t round) {
    if (round <= round_)
        return;
    round_ = round;
    const auto outcome = client_.step();
    // It has had time to answer.
    look(outcome == hints::Outcome::Pending ? hints::Outcome::Fallback : outcome);
}

void JobHints::dispatch() {
    look(client_.dispatch(std::chrono::milliseconds{0}));
}

MarkingStatus JobHints::status() const {
    const std::lock_guard lock(mutex_);
    return status_;
}

/// What has come of it, after a call with this OUTCOME.
void JobHints::look(hints::Outcome outcome) {
    using hints::Outcome;
    if (outcome == Outcome::Refused)
        refused_ = client_.error();
    MarkingStatus now;
    if (!impossible_.empty()) {
        now.why = impossible_;
    } else if (client_.connected()) {
        now = {MarkedBy::daemon, client_.job_number(), 0, 0, refused_};
    } else {
        now = {MarkedBy::priority, 0, 0, 0, client_.why()};
    }
    if (changed_ && outcome != Outcome::Pending && now != told_)
        changed_(told_ = now);
    now.connections = client_.sockets();
    now.marked = client_.marked();
    const std::lock_guard lock(mutex_);
    status_ = std::move(now);
}

}  // namespace mercury::transport
