// SPDX-License-Identifier: MIT
//
// What an administrator may do to a mercury, and what he must not: drawn at random.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "netlink.hpp"
#include "random.hpp"

namespace fuzz {

/// What the kernel must say to a request.
enum class Answer { accepted, refused, either };

struct Operation {
    std::string name;
    Message message;
    Answer answer = Answer::accepted;
};

/// Draws operations, and knows what has become of the qdisc as far as that matters for the next
/// ones. What is drawn depends on the random numbers only, not on what the kernel does.
class Operations {
  public:
    Operations(Random& random, int ifindex, std::uint32_t parent);

    /// The first one adds the qdisc.
    Operation next();
    /// Undo what could keep packets in the queue for long.
    Operation open();
    Operation up();

    bool has_mercury() const { return present_; }
    std::uint32_t handle() const { return handle_; }
    /// Whether the default class has had one child only since the qdisc was made: then that
    /// child has counted all that it carried.
    bool has_first_child() const { return first_child_; }

  private:
    Operation add();
    Operation remove();
    Operation replace();
    Operation change();
    Operation refused_change();
    Operation flipped_change();
    Operation resync();
    Operation change_class();
    Operation refused_class();
    Operation flipped_class();
    Operation graft();
    Operation refused_graft();
    Operation ungraft();
    Operation add_filter();
    Operation remove_filters();
    Operation device_up_or_down();
    Operation set_device(bool up);

    Message request(std::uint16_t flags) const;
    Message class_request(std::uint32_t minor) const;
    void put_options(Message& message);
    void put_option(Message& message);
    void put_deadlines(Message& message);
    std::uint32_t random_minor();
    void flip(Message& message);

    Random& random_;
    int ifindex_;
    std::uint32_t parent_;
    std::uint32_t handle_ = 0x10000;
    std::uint32_t jobs_ = 0;
    std::uint32_t bands_ = 0;
    bool present_ = false;
    bool first_child_ = false;
    bool has_child_ = false;
    bool has_filter_ = false;
    bool up_ = true;
    bool unsure_ = false;  // whether the sizes are those
};

}  // namespace fuzz
