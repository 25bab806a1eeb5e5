// SPDX-License-Identifier: MIT
//
// Real profiles, measured on GPUs. They are not part of this project; where they are not found,
// the tests say so. The format itself is tested in profile_test.cpp.
#include <algorithm>
#include <filesystem>
#include <string>

#include <catch2/catch.hpp>

#include "common/units.hpp"
#include "layers/models.hpp"
#include "layers/profile.hpp"

using namespace mercury;
using namespace std::chrono_literals;

namespace {

/// Nothing if the profiles are not there.
std::filesystem::path profile_file(const std::string& name) {
    const std::filesystem::path folder(MERCURY_PROFILES);
    if (!std::filesystem::is_directory(folder)) {
        WARN("NOT TESTED: no profiles in " << folder << " (cmake -DMERCURY_PROFILES=FOLDER)");
        return {};
    }
    return folder / name;
}

Profile load(const std::filesystem::path& path) {
    auto profile = load_profile(path);
    INFO((profile ? "" : profile.error().message));
    REQUIRE(profile);
    return std::move(profile).value();
}

/// As the built-in models have them: a convolution with its batch normalisation is one layer, and
/// Inception-v3 has no auxiliary classifier, which is two convolutions and a product.
std::vector<Layer> like_built_in(const std::vector<Layer>& measured) {
    std::vector<Layer> layers;
    for (const Layer& layer : measured) {
        if (layer.name.starts_with("BatchNorm2d")) {
            layers.back().bytes += layer.bytes;
            layers.back().forward += layer.forward;
            layers.back().backward += layer.backward;
        } else {
            layers.push_back(layer);
        }
    }
    const auto auxiliary = std::find_if(layers.begin(), layers.end(), [](const Layer& layer) {
        return layer.name.starts_with("Conv2d(128, 768, kernel_size=(5, 5)");
    });
    if (auxiliary != layers.end())
        layers.erase(auxiliary - 1, auxiliary + 2);
    return layers;
}

}  // namespace

TEST_CASE("graph and CSV of each measured model agree", "[profile][files]") {
    const std::string model = GENERATE("alexnet", "vgg16", "resnet50", "inception_v3");
    INFO(model);
    const auto graph_path = profile_file(model + ".graph.txt");
    if (graph_path.empty())
        return;
    const Profile graph = load(graph_path);
    const Profile csv = load(profile_file(model + ".csv"));
    REQUIRE(graph.layers.size() == csv.layers.size());
    for (std::size_t i = 0; i < graph.layers.size(); ++i) {
        INFO(i);
        CHECK(graph.layers[i].name == csv.layers[i].name);
        CHECK(graph.layers[i].bytes == csv.layers[i].bytes);
        // The CSV is rounded to a microsecond.
        CHECK(std::chrono::abs(graph.layers[i].forward - csv.layers[i].forward) <= 500ns);
        CHECK(std::chrono::abs(graph.layers[i].backward - csv.layers[i].backward) <= 500ns);
    }
}

TEST_CASE("built-in models have the layers of the measured ones", "[profile][files]") {
    const std::string name = GENERATE("alexnet", "vgg16", "resnet50", "inception_v3");
    INFO(name);
    const auto path = profile_file(name + ".csv");
    if (path.empty())
        return;
    const auto measured = like_built_in(load(path).layers);
    const auto built = model_by_name(name, {});
    REQUIRE(built);
    REQUIRE(measured.size() == built.value().layers.size());
    for (std::size_t i = 0; i < measured.size(); ++i) {
        INFO(i << ": " << measured[i].name << " is " << built.value().layers[i].name);
        CHECK(measured[i].bytes == built.value().layers[i].bytes);
    }
}

TEST_CASE("built-in models take about as long as the measured ones", "[profile][files]") {
    struct Measured {
        const char* name;
        std::uint64_t batch;
    };
    const auto model = GENERATE(Measured{"alexnet", 256}, Measured{"vgg16", 128},
                                Measured{"resnet50", 128}, Measured{"inception_v3", 128});
    INFO(model.name);
    const auto path = profile_file(std::string(model.name) + ".csv");
    if (path.empty())
        return;
    double measured = 0;
    for (const Layer& layer : like_built_in(load(path).layers))
        measured += to_ms(layer.forward + layer.backward);
    const auto built = model_by_name(model.name, {std::nullopt, model.batch});
    REQUIRE(built);
    CHECK(to_ms(built.value().compute()) == Approx(measured).epsilon(0.2));
}
