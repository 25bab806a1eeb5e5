// SPDX-License-Identifier: MIT
//
// Messages as a kernel sends them, written without the library under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace mercury::netlink::test {

class Message {
  public:
    Message(std::uint16_t type, std::uint16_t flags, std::uint32_t sequence);

    template <typename T>
    Message& add(const T& value) {
        return raw(&value, sizeof(value));
    }
    template <typename T>
    Message& attribute(std::uint16_t type, const T& value) {
        return attribute(type, &value, sizeof(value));
    }
    Message& text(std::uint16_t type, const std::string& value) {
        return attribute(type, value.c_str(), value.size() + 1);
    }
    Message& attribute(std::uint16_t type, const void* data, std::size_t size);
    Message& nest(std::uint16_t type, const std::function<void(Message&)>& fill);

    /// With the length in its header.
    std::vector<std::byte> bytes() const;

  private:
    Message& raw(const void* data, std::size_t size);

    std::vector<std::byte> bytes_;
};

/// A dump of one mercury qdisc with everything that it may have.
std::vector<std::byte> full_qdisc();
/// The same of a band.
std::vector<std::byte> full_class();

}  // namespace mercury::netlink::test
