// SPDX-License-Identifier: MIT
#include "replay/vgg16.hpp"

#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

/// Output channels of the 3 x 3 convolutions (stride 1, padding 1) of each of the five blocks;
/// a 2 x 2 pooling ends each block.
constexpr std::array<std::pair<int, std::uint64_t>, 5> blocks{
    {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}};
constexpr std::array<std::uint64_t, 3> fully_connected{4096, 4096, 1000};
constexpr std::uint64_t image_size = 224;
constexpr std::uint64_t image_channels = 3;
constexpr std::uint64_t bytes_per_parameter = 4;

}  // namespace

Result<Profile> builtin_vgg16(const ComputeRate& rate) {
    if (!(rate.tflops > 0) || !std::isfinite(rate.tflops) || rate.tflops > 1e6)
        return Error{fmt::format("tflops must be above 0 and at most 1e6, not {}", rate.tflops)};
    if (rate.batch < 1 || rate.batch > 1'000'000)
        return Error{fmt::format("batch must be 1 to 1000000, not {}", rate.batch)};

    Profile profile{"VGG-16",
                    fmt::format("built in: {:g} TFLOP/s, batch {}, backward = 2 x forward",
                                rate.tflops, rate.batch),
                    {}};
    // One multiplication and one addition for each weight at each output position.
    const auto add = [&](std::string name, std::uint64_t weights, std::uint64_t biases,
                         std::uint64_t positions) {
        const double operations =
            2.0 * static_cast<double>(weights) * static_cast<double>(positions * rate.batch);
        const std::chrono::nanoseconds forward(std::llround(operations / (rate.tflops * 1e3)));
        profile.layers.push_back(
            {std::move(name), forward, 2 * forward, (weights + biases) * bytes_per_parameter});
    };

    std::uint64_t size = image_size;
    std::uint64_t channels = image_channels;
    int block_number = 0;
    for (const auto& [convolutions, out] : blocks) {
        ++block_number;
        for (int i = 1; i <= convolutions; ++i) {
            add(fmt::format("conv{}_{}", block_number, i), channels * 9 * out, out, size * size);
            channels = out;
        }
        size /= 2;
    }

    std::uint64_t in = channels * size * size;
    int number = block_number;
    for (const auto out : fully_connected) {
        add(fmt::format("fc{}", ++number), in * out, out, 1);
        in = out;
    }
    return profile;
}

}  // namespace mercury::replay
