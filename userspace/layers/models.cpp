// SPDX-License-Identifier: MIT
#include "layers/models.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mercury {
namespace {

constexpr std::uint64_t bytes_per_parameter = 4;
constexpr std::uint64_t image_classes = 1000;

/// Collects layers; counts are for one sample.
class Builder {
  public:
    explicit Builder(double ns_per_product) : ns_per_product_(ns_per_product) {}

    void layer(std::string name, std::uint64_t parameters, std::uint64_t products) {
        layers_.push_back({std::move(name), {}, {}, parameters * bytes_per_parameter});
        products_.push_back(products);
    }

    /// What follows the last layer and has no parameters of its own.
    void behind(std::uint64_t products) { products_.back() += products; }

    std::vector<Layer> layers() && {
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            layers_[i].forward = std::chrono::nanoseconds(
                std::llround(static_cast<double>(products_[i]) * ns_per_product_));
            layers_[i].backward = 2 * layers_[i].forward;
        }
        return std::move(layers_);
    }

  private:
    double ns_per_product_;  // of a whole batch
    std::vector<Layer> layers_;
    std::vector<std::uint64_t> products_;  // of each layer
};

/// A matrix product with a bias, at each of POSITIONS.
void dense(Builder& builder, std::string name, std::uint64_t in, std::uint64_t out,
           std::uint64_t positions, std::uint64_t more_parameters = 0) {
    builder.layer(std::move(name), in * out + out + more_parameters, in * out * positions);
}

// Image models ---------------------------------------------------------------------------------

struct Convolution {
    std::uint64_t out = 0;  // channels
    std::uint64_t height = 1;
    std::uint64_t width = 1;
    std::uint64_t stride = 1;
    std::uint64_t pad_height = 0;
    std::uint64_t pad_width = 0;
};

/// Keeps the size of the image.
constexpr Convolution same(std::uint64_t out, std::uint64_t height, std::uint64_t width) {
    return {out, height, width, 1, height / 2, width / 2};
}

constexpr Convolution square(std::uint64_t out, std::uint64_t size, std::uint64_t stride = 1,
                             std::uint64_t pad = 0) {
    return {out, size, size, stride, pad, pad};
}

/// What comes with a weight, as many parameters for each output channel.
enum class With : std::uint64_t { bias = 1, batch_norm = 2 };

/// Activations between two layers.
struct Image {
    std::uint64_t channels = 3;
    std::uint64_t height = 224;
    std::uint64_t width = 224;

    std::uint64_t size() const { return channels * height * width; }
};

constexpr std::uint64_t output_size(std::uint64_t in, std::uint64_t kernel, std::uint64_t stride,
                                    std::uint64_t pad) {
    return (in + 2 * pad - kernel) / stride + 1;
}

Image convolve(Builder& builder, std::string name, const Image& in, const Convolution& kernel,
               With with) {
    const Image out{kernel.out,
                    output_size(in.height, kernel.height, kernel.stride, kernel.pad_height),
                    output_size(in.width, kernel.width, kernel.stride, kernel.pad_width)};
    const auto weights = in.channels * kernel.height * kernel.width * kernel.out;
    builder.layer(std::move(name), weights + static_cast<std::uint64_t>(with) * kernel.out,
                  weights * out.height * out.width);
    return out;
}

Image pool(const Image& in, std::uint64_t kernel, std::uint64_t stride, std::uint64_t pad = 0) {
    return {in.channels, output_size(in.height, kernel, stride, pad),
            output_size(in.width, kernel, stride, pad)};
}

/// The end of VGG and AlexNet.
void classifier(Builder& builder, std::uint64_t in) {
    constexpr std::array<std::uint64_t, 3> outs{4096, 4096, image_classes};
    int number = 5;
    for (const auto out : outs) {
        dense(builder, fmt::format("fc{}", ++number), in, out, 1);
        in = out;
    }
}

void build_vgg16(Builder& builder) {
    // 3 x 3 convolutions and output channels of each block; a 2 x 2 pooling ends it.
    constexpr std::array<std::pair<int, std::uint64_t>, 5> blocks{
        {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}};
    Image image;
    int block = 0;
    for (const auto& [convolutions, out] : blocks) {
        ++block;
        for (int i = 1; i <= convolutions; ++i) {
            image = convolve(builder, fmt::format("conv{}_{}", block, i), image, same(out, 3, 3),
                             With::bias);
        }
        image = pool(image, 2, 2);
    }
    classifier(builder, image.size());
}

/// The one-column version of torchvision.
void build_alexnet(Builder& builder) {
    constexpr std::array<std::pair<Convolution, bool>, 5> convolutions{{
        // ... and whether a 3 x 3 pooling of stride 2 follows
        {square(64, 11, 4, 2), true},
        {same(192, 5, 5), true},
        {same(384, 3, 3), false},
        {same(256, 3, 3), false},
        {same(256, 3, 3), true},
    }};
    Image image;
    int number = 0;
    for (const auto& [kernel, pooled] : convolutions) {
        image = convolve(builder, fmt::format("conv{}", ++number), image, kernel, With::bias);
        if (pooled)
            image = pool(image, 3, 2);
    }
    classifier(builder, image.size());
}

/// Version 1.5, as in torchvision: the 3 x 3 convolution has the stride.
void build_resnet50(Builder& builder) {
    constexpr std::array<std::uint64_t, 4> stages{3, 4, 6, 3};  // blocks of each
    const auto convolution = [&](std::string name, const Image& in, const Convolution& kernel) {
        return convolve(builder, std::move(name), in, kernel, With::batch_norm);
    };

    Image image = pool(convolution("conv1", Image{}, square(64, 7, 2, 3)), 3, 2, 1);
    std::uint64_t width = 64;
    for (std::size_t stage = 0; stage < stages.size(); ++stage, width *= 2) {
        for (std::uint64_t block = 0; block < stages[stage]; ++block) {
            const auto name = [&](std::string_view part) {
                return fmt::format("layer{}.{}.{}", stage + 1, block, part);
            };
            const std::uint64_t stride = stage > 0 && block == 0 ? 2 : 1;
            const Image in = image;
            image = convolution(name("conv1"), image, square(width, 1));
            image = convolution(name("conv2"), image, square(width, 3, stride, 1));
            image = convolution(name("conv3"), image, square(4 * width, 1));
            if (block == 0)
                image = convolution(name("downsample"), in, square(4 * width, 1, stride));
        }
    }
    dense(builder, "fc", image.channels, image_classes, 1);
}

/// A convolution of an inception block. A sibling takes the same input as the one before it, and
/// both their outputs count.
struct BranchPart {
    std::string_view name;
    Convolution kernel;
    bool sibling = false;
};

/// One after the other; none at all is a pooling that halves the size.
using Branch = std::vector<BranchPart>;

/// All branches on the same input, their outputs side by side.
Image inception(Builder& builder, std::string_view block, const Image& in,
                const std::vector<Branch>& branches) {
    Image out{0, 0, 0};
    for (const Branch& branch : branches) {
        Image before = in;
        Image here = in;
        std::uint64_t channels = in.channels;
        for (const BranchPart& part : branch) {
            if (!part.sibling)
                before = here;
            here = convolve(builder, fmt::format("{}.{}", block, part.name), before, part.kernel,
                            With::batch_norm);
            channels = part.sibling ? channels + here.channels : here.channels;
        }
        out.channels += channels;
        if (!branch.empty())
            out = {out.channels, here.height, here.width};
    }
    return out;
}

std::vector<Branch> inception_a(std::uint64_t pool_channels) {
    return {
        {{"1x1", same(64, 1, 1)}},
        {{"5x5_1", same(48, 1, 1)}, {"5x5_2", same(64, 5, 5)}},
        {{"3x3dbl_1", same(64, 1, 1)}, {"3x3dbl_2", same(96, 3, 3)}, {"3x3dbl_3", same(96, 3, 3)}},
        {{"pool", same(pool_channels, 1, 1)}}};
}

std::vector<Branch> inception_b() {
    return {{{"3x3", square(384, 3, 2)}},
            {{"3x3dbl_1", same(64, 1, 1)},
             {"3x3dbl_2", same(96, 3, 3)},
             {"3x3dbl_3", square(96, 3, 2)}},
            {}};
}

std::vector<Branch> inception_c(std::uint64_t inner) {
    return {
        {{"1x1", same(192, 1, 1)}},
        {{"7x7_1", same(inner, 1, 1)}, {"7x7_2", same(inner, 1, 7)}, {"7x7_3", same(192, 7, 1)}},
        {{"7x7dbl_1", same(inner, 1, 1)},
         {"7x7dbl_2", same(inner, 7, 1)},
         {"7x7dbl_3", same(inner, 1, 7)},
         {"7x7dbl_4", same(inner, 7, 1)},
         {"7x7dbl_5", same(192, 1, 7)}},
        {{"pool", same(192, 1, 1)}}};
}

std::vector<Branch> inception_d() {
    return {{{"3x3_1", same(192, 1, 1)}, {"3x3_2", square(320, 3, 2)}},
            {{"7x7x3_1", same(192, 1, 1)},
             {"7x7x3_2", same(192, 1, 7)},
             {"7x7x3_3", same(192, 7, 1)},
             {"7x7x3_4", square(192, 3, 2)}},
            {}};
}

std::vector<Branch> inception_e() {
    return {{{"1x1", same(320, 1, 1)}},
            {{"3x3_1", same(384, 1, 1)},
             {"3x3_2a", same(384, 1, 3)},
             {"3x3_2b", same(384, 3, 1), true}},
            {{"3x3dbl_1", same(448, 1, 1)},
             {"3x3dbl_2", same(384, 3, 3)},
             {"3x3dbl_3a", same(384, 1, 3)},
             {"3x3dbl_3b", same(384, 3, 1), true}},
            {{"pool", same(192, 1, 1)}}};
}

/// As in torchvision, without the auxiliary classifier.
void build_inception_v3(Builder& builder) {
    const std::array<std::pair<std::string_view, std::vector<Branch>>, 11> blocks{{
        {"5b", inception_a(32)},
        {"5c", inception_a(64)},
        {"5d", inception_a(64)},
        {"6a", inception_b()},
        {"6b", inception_c(128)},
        {"6c", inception_c(160)},
        {"6d", inception_c(160)},
        {"6e", inception_c(192)},
        {"7a", inception_d()},
        {"7b", inception_e()},
        {"7c", inception_e()},
    }};
    const auto stem = [&](std::string name, const Image& in, const Convolution& kernel) {
        return convolve(builder, std::move(name), in, kernel, With::batch_norm);
    };
    Image image = stem("1a", {3, 299, 299}, square(32, 3, 2));
    image = stem("2a", image, square(32, 3));
    image = pool(stem("2b", image, same(64, 3, 3)), 3, 2);
    image = stem("3b", image, square(80, 1));
    image = pool(stem("4a", image, square(192, 3)), 3, 2);
    for (const auto& [name, branches] : blocks)
        image = inception(builder, name, image, branches);
    dense(builder, "fc", image.channels, image_classes, 1);
}

// Transformers ---------------------------------------------------------------------------------

constexpr std::uint64_t hidden = 768;
constexpr std::uint64_t feed_forward = 4 * hidden;
constexpr std::uint64_t transformer_depth = 12;
constexpr std::uint64_t norm = 2 * hidden;  // parameters of a layer normalisation
constexpr std::uint64_t bert_tokens = 128;
constexpr std::uint64_t gpt2_tokens = 1024;

/// Where the normalisations of a block are: before what they serve, or behind it.
enum class Norm { before, behind };

void transformer_blocks(Builder& builder, std::uint64_t tokens, Norm place) {
    const std::uint64_t before = place == Norm::before ? norm : 0;
    const std::uint64_t behind = norm - before;
    for (std::uint64_t block = 0; block < transformer_depth; ++block) {
        const auto name = [&](std::string_view part) { return fmt::format("h{}.{}", block, part); };
        dense(builder, name("attention.qkv"), hidden, 3 * hidden, tokens, before);
        builder.behind(2 * tokens * tokens * hidden);  // scores, and values by score
        dense(builder, name("attention.out"), hidden, hidden, tokens, behind);
        dense(builder, name("ffn.in"), hidden, feed_forward, tokens, before);
        dense(builder, name("ffn.out"), feed_forward, hidden, tokens, behind);
    }
}

/// The model without a task's head, which is small: what is fine-tuned.
void build_bert_base(Builder& builder) {
    constexpr std::uint64_t vocabulary = 30522;
    constexpr std::uint64_t positions = 512;
    constexpr std::uint64_t segments = 2;
    builder.layer("embeddings", (vocabulary + positions + segments) * hidden + norm, 0);
    transformer_blocks(builder, bert_tokens, Norm::behind);
    dense(builder, "pooler", hidden, hidden, 1, 0);  // of the first token only
}

void build_gpt2(Builder& builder) {
    constexpr std::uint64_t vocabulary = 50257;
    constexpr std::uint64_t positions = gpt2_tokens;
    builder.layer("embeddings, tied", (vocabulary + positions) * hidden, 0);
    transformer_blocks(builder, gpt2_tokens, Norm::before);
    builder.layer("norm, output", norm, 0);
    builder.behind(vocabulary * hidden * gpt2_tokens);  // with the token embeddings
}

// The list -------------------------------------------------------------------------------------

/// Defaults stand for one V100 (16 GB, fp32), whose peak is 15.7 TFLOP/s.
///
/// Rates: of the image models, what the measured profiles of the PipeDream project come to with
/// these counts of operations (VGG-16 there 17.7, as some of its convolutions are computed with
/// fewer operations; 15 leaves it below the peak). Of the transformers, what NVIDIA published for
/// BERT-large in fp32 on a V100: 40 sequences of 128 tokens a second are 10.5, 8.4 of 512 are 9.2.
///
/// Batches: VGG-16, AlexNet and Inception-v3 as tf_cnn_benchmarks has them for one GPU; ResNet-50
/// as its authors had it (256 on 8 GPUs); BERT as in its fine-tuning; of GPT-2 what 16 GB hold.
struct Entry {
    BuiltinModel model;
    void (*build)(Builder&) = nullptr;
};
constexpr std::array<Entry, 6> entries{{
    {{"vgg16", "VGG-16", "images of 224 x 224", 15, 64}, build_vgg16},
    {{"alexnet", "AlexNet", "images of 224 x 224", 12.8, 512}, build_alexnet},
    {{"resnet50", "ResNet-50", "images of 224 x 224", 7.1, 32}, build_resnet50},
    {{"inception_v3", "Inception-v3", "images of 299 x 299", 6.4, 32}, build_inception_v3},
    {{"bert_base", "BERT-base", "sequences of 128 tokens", 10, 32}, build_bert_base},
    {{"gpt2", "GPT-2", "sequences of 1024 tokens", 10, 4}, build_gpt2},
}};

const Entry* find_model(std::string_view name) {
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& entry) { return entry.model.name == name; });
    return found == entries.end() ? nullptr : &*found;
}

std::string known_names() {
    std::vector<std::string_view> names;
    for (const Entry& entry : entries)
        names.push_back(entry.model.name);
    return fmt::format("{}", fmt::join(names, ", "));
}

Result<Profile> build(const Entry& entry, const ComputeRate& rate) {
    const BuiltinModel& model = entry.model;
    const double tflops = rate.tflops.value_or(model.tflops);
    const std::uint64_t batch = rate.batch.value_or(model.batch);
    if (!(tflops > 0) || !std::isfinite(tflops) || tflops > 1e6)
        return Error{fmt::format("tflops must be above 0 and at most 1e6, not {}", tflops)};
    if (batch < 1 || batch > 1'000'000)
        return Error{fmt::format("batch must be 1 to 1000000, not {}", batch)};

    // A product is a multiplication and an addition; 1 TFLOP/s is 1000 operations a nanosecond.
    Builder builder(2 * static_cast<double>(batch) / (tflops * 1e3));
    entry.build(builder);
    return Profile{std::string(model.title),
                   fmt::format("built in: {:g} TFLOP/s, batch {} ({}), backward = 2 x forward",
                               tflops, batch, model.sample),
                   std::move(builder).layers()};
}

}  // namespace

std::vector<BuiltinModel> builtin_models() {
    std::vector<BuiltinModel> models;
    for (const Entry& entry : entries)
        models.push_back(entry.model);
    return models;
}

Result<Profile> model_by_name(std::string_view name, const ComputeRate& rate) {
    if (const Entry* const entry = find_model(name))
        return build(*entry, rate);
    return Error{
        fmt::format("no built-in model is called \"{}\"; there are {}", name, known_names())};
}

Result<Profile> model_or_file(std::string_view name_or_path, const ComputeRate& rate) {
    if (const Entry* const entry = find_model(name_or_path))
        return build(*entry, rate);
    const std::filesystem::path path(name_or_path);
    std::error_code failure;
    if (!std::filesystem::exists(path, failure) && !path.has_parent_path()) {
        return Error{fmt::format("\"{}\" is neither a file nor a built-in model; there are {}",
                                 name_or_path, known_names())};
    }
    return load_profile(path);
}

}  // namespace mercury
