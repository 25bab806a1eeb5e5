// SPDX-License-Identifier: MIT
//
// Whole rounds of push-pull with made-up gradients, and what they must give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "transport/worker.hpp"
#include "values.hpp"

namespace mercury::transport::test {

using Bytes = std::vector<std::byte>;

/// Their gradients are the same whenever they are asked for.
class Rounds {
  public:
    Rounds(std::vector<Tensor> tensors, std::size_t workers, SumOrder order, Kind kind,
           std::uint64_t seed)
        : tensors_(std::move(tensors)),
          workers_(workers),
          order_(order),
          kind_(kind),
          seed_(seed) {}

    const std::vector<Tensor>& tensors() const { return tensors_; }

    /// What WORKER pushes of TENSOR in ROUND.
    Bytes gradient(std::size_t tensor, std::uint64_t round, std::size_t worker) const;

    /// Empty if FOUND is the reduced tensor; else what is wrong. In the order of the ranks all bits
    /// must be right, and so they must in any order for integers. Otherwise each addition and each
    /// change of format may round once.
    std::string check(std::size_t tensor, std::uint64_t round,
                      std::span<const std::byte> found) const;

  private:
    Values values(std::size_t tensor) const {
        return {tensors_[tensor].type, kind_, seed_ * 1'000'003 + tensor};
    }
    std::string check_element(const Tensor& tensor, std::span<const float> pushed,
                              Bits found) const;

    std::vector<Tensor> tensors_;
    std::size_t workers_;
    SumOrder order_;
    Kind kind_;
    std::uint64_t seed_;
};

/// Pushes ROUND of all tensors at all WORKERS in a random order, waits, and requires the right
/// sums.
void run_round(const Rounds& rounds, const std::vector<std::unique_ptr<Worker>>& workers,
               std::uint64_t round, std::mt19937& random);

}  // namespace mercury::transport::test
