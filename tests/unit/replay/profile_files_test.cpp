// SPDX-License-Identifier: MIT
//
// Real profiles, measured on GPUs. They are not part of this project; where they are not found,
// the tests say so. The format itself is tested in profile_test.cpp.
#include <filesystem>
#include <string>

#include <catch2/catch.hpp>

#include "replay/profile.hpp"
#include "replay/vgg16.hpp"

using namespace mercury::replay;
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

TEST_CASE("the built-in VGG-16 has the layers of the measured one", "[profile][files]") {
    const auto path = profile_file("vgg16.csv");
    if (path.empty())
        return;
    const Profile measured = load(path);
    const auto built = builtin_vgg16({});
    REQUIRE(built);
    REQUIRE(measured.layers.size() == built.value().layers.size());
    for (std::size_t i = 0; i < measured.layers.size(); ++i) {
        INFO(i);
        CHECK(measured.layers[i].bytes == built.value().layers[i].bytes);
    }
}
