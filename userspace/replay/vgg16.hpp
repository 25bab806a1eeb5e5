// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "common/result.hpp"
#include "replay/profile.hpp"

namespace mercury::replay {

/// What the compute time of the built-in profile is derived from.
struct ComputeRate {
    double tflops = 15;        // sustained, 1e12 floating-point operations a second: a V100 in fp32
    std::uint64_t batch = 64;  // compute and a 10 Gbit/s wire take about as long
};

/// VGG-16 for 224 x 224 images, from its architecture: exact parameter sizes (138,357,544 of four
/// bytes, biases included); forward time = operations / rate, backward time = twice that.
Result<Profile> builtin_vgg16(const ComputeRate& rate);

}  // namespace mercury::replay
