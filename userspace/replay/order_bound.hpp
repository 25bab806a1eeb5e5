// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

#include "layers/profile.hpp"

namespace mercury::replay {

/// A sharper bound than max(compute, wire), never below it: what an ideal network attains that
/// always sends the bytes that are needed first. WIRE is what the bytes of all layers take at the
/// busiest NIC; each layer has its share of it.
///
/// The gradients of layers 0 to i are ready when the backward pass has left layer i, and all of
/// them have to be back before the next forward pass enters it. What is left of an iteration, the
/// forward and backward pass from layer i to the last one, cannot hide any of their bytes. So a
/// model waits for what is large and ready late (an embedding), and the wire waits while a model
/// computes at its end without a gradient to show for it (the output product of GPT-2).
std::chrono::nanoseconds order_bound(const Profile& profile, std::chrono::nanoseconds wire);

}  // namespace mercury::replay
