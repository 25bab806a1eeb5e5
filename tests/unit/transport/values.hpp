// SPDX-License-Identifier: MIT
//
// What workers push in the tests: numbers that look random and can be had again at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference.hpp"
#include "transport/element.hpp"

namespace mercury::transport::test {

enum class Kind {
    any,       // all patterns, infinities and NaN among them
    finite,    // of both signs, from 2^-12 to 2^4: the order of additions shows in the last bits
    integers,  // -8 to 8
};

class Values {
  public:
    Values(ElementType type, Kind kind, std::uint64_t seed)
        : type_(type), kind_(kind), seed_(seed) {}

    /// Element INDEX of WORKER's endless stream of rounds.
    Bits element(std::size_t worker, std::uint64_t index) const;
    /// N bytes of that stream, from byte POSITION on.
    std::vector<std::byte> bytes(std::size_t worker, std::uint64_t position, std::size_t n) const;

  private:
    ElementType type_;
    Kind kind_;
    std::uint64_t seed_;
};

}  // namespace mercury::transport::test
