// SPDX-License-Identifier: MIT
//
// What an Accumulator has to do, one element at a time, with memory for every round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "reference.hpp"
#include "transport/element.hpp"

namespace mercury::transport::test {

class Model {
  public:
    Model(ElementType type, Reduction reduction, SumOrder order, std::size_t elements,
          std::size_t workers);

    std::size_t room(std::size_t worker) const;
    /// A worker is in the sum of an element once its last byte is here.
    void add(std::size_t worker, std::span<const std::byte> bytes);
    /// Bytes that are ready for WORKER.
    std::size_t ready(std::size_t worker) const;
    /// Are FOUND the first bytes that are ready for WORKER? Of NaN, any pattern will do.
    bool agrees(std::size_t worker, std::span<const std::byte> found) const;
    void take(std::size_t worker, std::size_t bytes);

    std::uint64_t pushed(std::size_t worker) const;
    std::uint64_t pulled(std::size_t worker) const { return workers_[worker].pulled; }

  private:
    struct Element {
        float sum = 0;
        std::size_t workers = 0;
        Bits result = 0;  // once all workers are in
    };
    struct Worker {
        std::uint64_t elements = 0;    // that are complete
        std::vector<std::byte> begun;  // of the next one
        std::uint64_t pulled = 0;      // bytes
    };

    bool may_write(std::size_t worker, std::uint64_t index) const;
    const Element* find(std::uint64_t index) const;
    void add_element(std::size_t worker, Bits bits);

    ElementType type_;
    Reduction reduction_;
    SumOrder order_;
    std::size_t elements_;
    std::vector<Worker> workers_;
    std::map<std::uint64_t, Element> sums_;  // by index, counted through all rounds
};

}  // namespace mercury::transport::test
