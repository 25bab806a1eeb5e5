// SPDX-License-Identifier: MIT
//
// A training profile: what each layer of a model computes and sends.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.hpp"

namespace mercury {

// What is larger is a mistake, and sums of it could overflow.
constexpr std::chrono::nanoseconds layer_time_max = std::chrono::hours(1);
constexpr std::uint64_t layer_bytes_max = 10'000'000'000'000;

/// One layer that has parameters, with the time of the parameter-free layers behind it.
struct Layer {
    std::string name;
    std::chrono::nanoseconds forward{0};
    std::chrono::nanoseconds backward{0};
    std::uint64_t bytes = 0;  // of the gradient, and of the parameters that come back

    friend bool operator==(const Layer&, const Layer&) = default;
};

/// Layers in the order of the forward pass, from the input. Never empty.
struct Profile {
    std::string name;    // of the model, for people
    std::string source;  // file name, or how the figures were computed
    std::vector<Layer> layers;

    std::chrono::nanoseconds forward() const;
    std::chrono::nanoseconds backward() const;
    std::chrono::nanoseconds compute() const { return forward() + backward(); }
    std::uint64_t bytes() const;
};

/// Adds the time of each layer without parameters to the layer with parameters before it, or,
/// before the first of these, to that one. Empty if no layer has parameters.
std::vector<Layer> fold_parameter_free(const std::vector<Layer>& layers);

/// PipeDream's graph.txt: node lines, then edge lines. SOURCE names the text in errors.
Result<Profile> parse_graph(std::string_view text, std::string_view source);

/// The simple form: a header line "idx,layer,fwd_ms,bwd_ms,param_bytes", then one row a layer.
Result<Profile> parse_csv(std::string_view text, std::string_view source);

/// Reads a file of either form; the content decides which.
Result<Profile> load_profile(const std::filesystem::path& path);

}  // namespace mercury
