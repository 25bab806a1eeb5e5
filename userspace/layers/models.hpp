// SPDX-License-Identifier: MIT
//
// Profiles that are computed from a model's architecture: exact gradient sizes, and times that
// follow from the number of operations. For where there is no measured profile.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/result.hpp"
#include "layers/profile.hpp"

namespace mercury {

/// What compute times are derived from. What is not given is the model's own default.
struct ComputeRate {
    std::optional<double> tflops;        // sustained, 1e12 floating-point operations a second
    std::optional<std::uint64_t> batch;  // samples that one worker computes in an iteration
};

struct BuiltinModel {
    std::string_view name;    // for the command line and experiments
    std::string_view title;   // for people
    std::string_view sample;  // what a batch counts
    double tflops = 0;        // ComputeRate's defaults
    std::uint64_t batch = 0;
};

std::vector<BuiltinModel> builtin_models();

/// A built-in model.
///
/// The forward pass of a layer takes its operations (a multiplication and an addition for each
/// weight and position) / rate, its backward pass twice that: normalisation, activations and
/// lookups cost no time of their own, the rate is the sustained one of the whole model. A layer is
/// a convolution or matrix product with its bias and the normalisation before or behind it, whose
/// gradients are ready and needed at the same moment as its own; the query, key and value matrices
/// of an attention are one layer. Parameters are 32-bit floats.
///
/// The embeddings of a transformer are its layer 0 and cost no time: their gradient is complete
/// last of all and needed first of all, so that no pass can hide its way over the network. The
/// output matrix of GPT-2 is the token embedding once more ("tied"): its gradient begins at the
/// very start of the backward pass, but is only complete with the lookup's part at the very end, so
/// it is sent once, then; the time of the output product counts for the last layer, and the end
/// of the forward pass finds the matrix already there.
Result<Profile> model_by_name(std::string_view name, const ComputeRate& rate);

/// The built-in model of that name, or the file. Write ./NAME for a file that is called like a
/// model. RATE is for built-in models only.
Result<Profile> model_or_file(std::string_view name_or_path, const ComputeRate& rate);

}  // namespace mercury
