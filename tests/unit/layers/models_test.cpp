// SPDX-License-Identifier: MIT
#include "layers/models.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/units.hpp"

using namespace mercury;
using Catch::Contains;

namespace {

Profile model(std::string_view name, const ComputeRate& rate = {}) {
    auto profile = model_by_name(name, rate);
    INFO((profile ? "" : profile.error().message));
    REQUIRE(profile);
    return std::move(profile).value();
}

std::uint64_t parameters(const Profile& profile, std::string_view layer) {
    const auto found = std::find_if(profile.layers.begin(), profile.layers.end(),
                                    [&](const Layer& other) { return other.name == layer; });
    INFO(layer);
    REQUIRE(found != profile.layers.end());
    return found->bytes / 4;
}

/// At 1 TFLOP/s.
double forward_gflop(const Profile& profile) {
    return to_ms(profile.forward());
}

struct Published {
    const char* name;
    std::size_t layers;
    std::uint64_t parameters;
    double gigaproducts;  // multiplications and additions of a forward pass of one sample
};

}  // namespace

TEST_CASE("built-in models have the published parameters and operations", "[models]") {
    // Of the image models as torchvision's documentation has them; of BERT the 22.5 GFLOP of 128
    // tokens of the TinyBERT paper, which count more than matrix products. See below for GPT-2.
    const auto published = GENERATE(Published{"vgg16", 16, 138'357'544, 15.47},
                                    Published{"alexnet", 8, 61'100'840, 0.714},
                                    Published{"resnet50", 54, 25'557'032, 4.089},
                                    Published{"inception_v3", 95, 23'834'568, 5.713},
                                    Published{"bert_base", 50, 109'482'240, 22.5 / 2});
    INFO(published.name);
    const Profile profile = model(published.name, {1, 1});
    CHECK(profile.layers.size() == published.layers);
    CHECK(profile.bytes() == published.parameters * 4);
    CHECK(forward_gflop(profile) == Approx(2 * published.gigaproducts).epsilon(0.01));
    CHECK(profile.backward() == 2 * profile.forward());
    for (const Layer& layer : profile.layers)
        CHECK(layer.bytes > 0);
}

TEST_CASE("each kind of layer has its parameters", "[models]") {
    const Profile vgg16 = model("vgg16");
    CHECK(parameters(vgg16, "conv1_1") == 3 * 3 * 3 * 64 + 64);
    CHECK(parameters(vgg16, "fc6") == 25088 * 4096 + 4096);
    CHECK(parameters(vgg16, "fc8") == 4096 * 1000 + 1000);
    CHECK(parameters(model("alexnet"), "fc6") == 256 * 6 * 6 * 4096 + 4096);

    // No bias; a scale and a shift for each channel of the batch normalisation.
    const Profile resnet50 = model("resnet50");
    CHECK(parameters(resnet50, "conv1") == 3 * 7 * 7 * 64 + 2 * 64);
    CHECK(parameters(resnet50, "layer4.0.downsample") == 1024 * 2048 + 2 * 2048);
    CHECK(parameters(model("inception_v3"), "6b.7x7_2") == 128 * 7 * 128 + 2 * 128);

    const Profile bert = model("bert_base");
    CHECK(parameters(bert, "h0.attention.qkv") == 3 * (768 * 768 + 768));
    CHECK(parameters(bert, "h11.ffn.out") == 3072 * 768 + 768 + 2 * 768);
    const Profile gpt2 = model("gpt2");
    CHECK(parameters(gpt2, "h0.attention.qkv") == 768 * 2304 + 2304 + 2 * 768);
    CHECK(parameters(gpt2, "h11.ffn.out") == 3072 * 768 + 768);
}

TEST_CASE("embeddings take no time, and a tied one is sent once, as the first layer", "[models]") {
    const Profile bert = model("bert_base");
    CHECK(bert.layers.front().forward.count() == 0);
    CHECK(bert.layers.front().backward.count() == 0);
    CHECK(bert.layers.front().bytes == 4 * ((30522 + 512 + 2) * 768 + 2 * 768));

    const Profile gpt2 = model("gpt2", {1, 1});
    CHECK(gpt2.layers.size() == 50);
    CHECK(gpt2.bytes() == 124'439'808ULL * 4);
    CHECK(gpt2.layers.front().forward.count() == 0);
    CHECK(gpt2.layers.front().bytes == 4 * (50257 + 1024) * 768);
    // The output product is computed last, with the parameters of layer 0.
    CHECK(gpt2.layers.back().bytes == 4 * 2 * 768);
    CHECK(to_ms(gpt2.layers.back().forward) == Approx(2.0 * 50257 * 768 * 1024 / 1e9));

    // The usual rule for a training step: 6 N operations a token (N without the positions, which
    // are only looked up) and 12 x layers x width x tokens for attention.
    const double per_token = 6.0 * (124'439'808 - 1024 * 768) + 12.0 * 12 * 768 * 1024;
    CHECK(to_ms(gpt2.compute()) == Approx(per_token * 1024 / 1e9).epsilon(0.002));
}

TEST_CASE("times follow from the rate and the batch, which are the model's unless given",
          "[models]") {
    for (const BuiltinModel& entry : builtin_models()) {
        INFO(entry.name);
        const Profile defaults = model(entry.name);
        CHECK(defaults.name == entry.title);
        const Profile same = model(entry.name, {entry.tflops, entry.batch});
        CHECK(same.compute() == defaults.compute());
        CHECK(same.source == defaults.source);
        CHECK(to_ms(model(entry.name, {entry.tflops, 3 * entry.batch}).compute()) ==
              Approx(3 * to_ms(defaults.compute())));
        CHECK(to_ms(model(entry.name, {2 * entry.tflops, std::nullopt}).compute()) ==
              Approx(to_ms(defaults.compute()) / 2));
        // The peak of the GPU that the defaults stand for.
        CHECK(entry.tflops <= 15.7);
    }
}

TEST_CASE("a rate or batch that makes no sense is refused", "[models]") {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (const double tflops : {0.0, -1.0, nan, infinity, 1.1e6}) {
        const auto refused = model_by_name("resnet50", {tflops, 128});
        REQUIRE_FALSE(refused);
        CHECK_THAT(refused.error().message, Contains("tflops"));
    }
    for (const std::uint64_t batch : {std::uint64_t{0}, std::uint64_t{1'000'001}}) {
        const auto refused = model_by_name("resnet50", {15, batch});
        REQUIRE_FALSE(refused);
        CHECK_THAT(refused.error().message, Contains("batch"));
    }
}

TEST_CASE("an unknown model is refused with all known ones", "[models]") {
    for (const auto& refused : {model_by_name("resnet51", {}), model_or_file("resnet51", {})}) {
        REQUIRE_FALSE(refused);
        CHECK_THAT(refused.error().message, Contains("\"resnet51\""));
        for (const BuiltinModel& entry : builtin_models())
            CHECK_THAT(refused.error().message, Contains(std::string(entry.name)));
    }
    CHECK_FALSE(model_by_name("", {}));
}

TEST_CASE("a profile is named by its model or by its file", "[models]") {
    const auto built = model_or_file("gpt2", {10, 1});
    REQUIRE(built);
    CHECK(built.value().compute() == model("gpt2", {10, 1}).compute());

    // A path is never a model: its errors are those of a file.
    const auto missing = model_or_file("./gpt2", {});
    REQUIRE_FALSE(missing);
    CHECK(missing.error().message == "./gpt2: no such file");

    const auto path = std::filesystem::temp_directory_path() /
                      ("mercury-models-test-" + std::to_string(getpid()) + ".csv");
    std::ofstream(path) << "idx,layer,fwd_ms,bwd_ms,param_bytes\n0,only,1,2,40\n";
    const auto loaded = model_or_file(path.string(), {});
    std::filesystem::remove(path);
    REQUIRE(loaded);
    CHECK(loaded.value().bytes() == 40);
}
