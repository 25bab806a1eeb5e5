// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace mercury::transport {

/// A tensor's next round.
struct Push {
    std::uint64_t round = 0;
    std::size_t tensor = 0;

    friend auto operator<=>(const Push&, const Push&) = default;
};

/// What a worker still has to push to one server in one class, and which of it is next.
///
/// Older rounds go first, and of a round what is needed first, the first tensor; but not while the
/// class is incomplete, while tensors of the newest round have not been handed over yet: these go
/// in the order in which they were. A backward pass hands over last what is needed first. Whoever
/// chose the first one of what there is would choose by the moment at which he is done with the one
/// before, each worker another; what only some have pushed cannot come back, and those who skipped
/// it get to it last.
class PushQueue {
  public:
    /// One more tensor belongs to the class.
    void expect_tensor() { ++tensors_; }

    void add(Push push) {
        if (push.round > newest_) {
            newest_ = push.round;
            handed_over_ = 0;
        }
        if (push.round == newest_)
            ++handed_over_;
        waiting_.push_back(push);
    }

    std::optional<Push> take() {
        if (waiting_.empty())
            return std::nullopt;
        const auto first = std::ranges::min_element(waiting_);
        const bool incomplete = first->round == newest_ && handed_over_ < tensors_;
        const auto next = incomplete ? waiting_.begin() : first;
        const Push push = *next;
        waiting_.erase(next);
        return push;
    }

  private:
    std::deque<Push> waiting_;     // in the order in which they were handed over
    std::size_t tensors_ = 0;      // of the class
    std::uint64_t newest_ = 0;     // round
    std::size_t handed_over_ = 0;  // tensors, of that round
};

}  // namespace mercury::transport
