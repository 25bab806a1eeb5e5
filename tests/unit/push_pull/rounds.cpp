// SPDX-License-Identifier: MIT
#include "rounds.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace mercury::transport::test {
namespace {

/// Half the distance between neighbours, relative to a number with an implicit first bit.
double unit_roundoff(ElementType type) {
    switch (type) {
        case ElementType::f32:
            return std::ldexp(1, -24);
        case ElementType::f16:
            return std::ldexp(1, -11);
        case ElementType::bf16:
            return std::ldexp(1, -8);
    }
    return 0;
}

/// The same below the smallest of those numbers, absolute.
constexpr double f16_subnormal_roundoff = 0x1p-25;

}  // namespace

Bytes Rounds::gradient(std::size_t tensor, std::uint64_t round, std::size_t worker) const {
    const std::size_t bytes = tensors_[tensor].elements * size_of(tensors_[tensor].type);
    return values(tensor).bytes(worker, (round - 1) * bytes, bytes);
}

std::string Rounds::check_element(const Tensor& tensor, std::span<const float> pushed,
                                  Bits found) const {
    const float factor =
        tensor.reduction == Reduction::mean ? 1.0F / static_cast<float>(pushed.size()) : 1.0F;
    if (order_ == SumOrder::rank || kind_ == Kind::integers) {
        const float sum = std::accumulate(pushed.begin() + 1, pushed.end(), pushed.front());
        const Bits expected = nearest(tensor.type, double{sum * factor});
        return found == expected
                   ? ""
                   : fmt::format("has the bits {:x} instead of {:x}", found, expected);
    }
    double exact = 0;
    double magnitude = 0;
    for (const float value : pushed) {
        exact += double{value} * double{factor};
        magnitude += std::abs(double{value} * double{factor});
    }
    const auto roundings = static_cast<double>(pushed.size() + 1);  // sums, 1/n and the product
    const double bound = roundings * unit_roundoff(ElementType::f32) * magnitude * 1.01 +
                         unit_roundoff(tensor.type) * std::abs(exact) * 1.01 +
                         f16_subnormal_roundoff;
    const double value = value_of(tensor.type, found);
    return std::abs(value - exact) <= bound
               ? ""
               : fmt::format("is {} instead of {}, more than {} away", value, exact, bound);
}

std::string Rounds::check(std::size_t tensor, std::uint64_t round,
                          std::span<const std::byte> found) const {
    const Tensor& shape = tensors_[tensor];
    std::vector<Bytes> pushed;
    for (std::size_t worker = 0; worker < workers_; ++worker)
        pushed.push_back(gradient(tensor, round, worker));
    std::vector<float> element(workers_);
    for (std::size_t i = 0; i < shape.elements; ++i) {
        for (std::size_t worker = 0; worker < workers_; ++worker)
            element[worker] =
                static_cast<float>(value_of(shape.type, load(shape.type, pushed[worker], i)));
        const auto wrong = check_element(shape, element, load(shape.type, found, i));
        if (!wrong.empty())
            return fmt::format("element {} of \"{}\" in round {} {}", i, shape.key, round, wrong);
    }
    return {};
}

void run_round(const Rounds& rounds, const std::vector<std::unique_ptr<Worker>>& workers,
               std::uint64_t round, std::mt19937& random) {
    const std::size_t tensors = rounds.tensors().size();
    std::vector<std::vector<Bytes>> buffers(workers.size());
    for (std::size_t w = 0; w < workers.size(); ++w) {
        for (std::size_t t = 0; t < tensors; ++t)
            buffers[w].push_back(rounds.gradient(t, round, w));
    }
    std::vector<std::pair<std::size_t, std::size_t>> pushes;  // (worker, tensor)
    for (std::size_t w = 0; w < workers.size(); ++w) {
        for (std::size_t t = 0; t < tensors; ++t)
            pushes.emplace_back(w, t);
    }
    std::shuffle(pushes.begin(), pushes.end(), random);
    for (const auto& [w, t] : pushes) {
        const auto ticket = workers[w]->push_pull(t, buffers[w][t]);
        INFO((ticket ? "" : ticket.error().message));
        REQUIRE(ticket.has_value());
        REQUIRE(ticket.value().round == round);
    }
    for (std::size_t w = 0; w < workers.size(); ++w) {
        for (std::size_t t = 0; t < tensors; ++t) {
            const auto done = workers[w]->wait({t, round});
            INFO((done ? "" : done.error().message));
            REQUIRE(done.has_value());
        }
    }
    // All workers get the same bytes: one is looked at closely.
    for (std::size_t t = 0; t < tensors; ++t) {
        REQUIRE(rounds.check(t, round, buffers[0][t]) == "");
        for (std::size_t w = 1; w < workers.size(); ++w)
            REQUIRE(buffers[w][t] == buffers[0][t]);
    }
}

}  // namespace mercury::transport::test
