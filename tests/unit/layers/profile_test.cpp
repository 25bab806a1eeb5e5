// SPDX-License-Identifier: MIT
#include "layers/profile.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>

using namespace mercury;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

std::string node(int id, const std::string& layer, double forward, double backward,
                 const std::string& bytes) {
    return "node" + std::to_string(id) + " -- " + layer +
           " -- forward_compute_time=" + std::to_string(forward) +
           ", backward_compute_time=" + std::to_string(backward) +
           ", activation_size=4.000, parameter_size=" + bytes + "\n";
}

std::string edge(int from, int to) {
    return "\tnode" + std::to_string(from) + " -- node" + std::to_string(to) + "\n";
}

Profile graph(const std::string& text) {
    auto profile = parse_graph(text, "dir/m.graph.txt");
    INFO((profile ? "" : profile.error().message));
    REQUIRE(profile);
    return std::move(profile).value();
}

std::string graph_error(const std::string& text) {
    const auto profile = parse_graph(text, "m.graph.txt");
    REQUIRE_FALSE(profile);
    return profile.error().message;
}

const std::string header = "idx,layer,fwd_ms,bwd_ms,param_bytes\n";

std::string csv_error(const std::string& text) {
    const auto profile = parse_csv(text, "m.csv");
    REQUIRE_FALSE(profile);
    return profile.error().message;
}

/// A file that is gone when the test ends.
class TemporaryFile {
  public:
    explicit TemporaryFile(const std::string& content)
        : path_(std::filesystem::temp_directory_path() /
                ("mercury-profile-" + std::to_string(getpid()))) {
        std::ofstream(path_) << content;
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    ~TemporaryFile() { std::filesystem::remove(path_); }
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

}  // namespace

TEST_CASE("a graph is read: order by its edges, the input dropped", "[profile][graph]") {
    // The lines are in no order, and the numbers do not follow the edges.
    const Profile profile = graph(
        node(3, "Conv2d(3, 64, kernel_size=(3, 3))", 1.5, 2.5, "400.000") +
        node(7, "Input", 99, 0, "0.000") +
        node(1, "Linear(in_features=8, bias=True)", 0.25, 0.75, "80") + edge(3, 1) + edge(7, 3));
    CHECK(profile.name == "m");
    CHECK(profile.source == "dir/m.graph.txt");
    REQUIRE(profile.layers.size() == 2);
    CHECK(profile.layers[0].name == "Conv2d(3, 64, kernel_size=(3, 3))");
    CHECK(profile.layers[0].forward == 1500us);
    CHECK(profile.layers[0].backward == 2500us);
    CHECK(profile.layers[0].bytes == 400);
    CHECK(profile.layers[1].name == "Linear(in_features=8, bias=True)");
    CHECK(profile.compute() == 5ms);
    CHECK(profile.bytes() == 480);
}

TEST_CASE("time of layers without parameters goes to the one before", "[profile][graph]") {
    const Profile profile =
        graph(node(1, "Input", 50, 0, "0.000") + node(2, "Normalize", 1, 2, "0.000") +
              node(3, "Conv2d(a)", 10, 20, "8.000") + node(4, "ReLU(inplace)", 3, 4, "0.000") +
              node(5, "MaxPool2d()", 5, 6, "0.000") + node(6, "Linear(b)", 100, 200, "16.000") +
              node(7, "Dropout(p=0.5)", 7, 8, "0.000") + edge(1, 2) + edge(2, 3) + edge(3, 4) +
              edge(4, 5) + edge(5, 6) + edge(6, 7));
    REQUIRE(profile.layers.size() == 2);
    CHECK(profile.layers[0].forward == 19ms);  // with the time before the first one
    CHECK(profile.layers[0].backward == 32ms);
    CHECK(profile.layers[1].forward == 107ms);
    CHECK(profile.layers[1].backward == 208ms);
}

TEST_CASE("branches: a layer comes after all that it needs", "[profile][graph]") {
    // 1 -> {2, 9} -> 4, and 4 would come before 9 by its number.
    const Profile profile =
        graph(node(1, "a", 1, 1, "4") + node(2, "b", 1, 1, "4") + node(4, "d", 1, 1, "4") +
              node(9, "c", 1, 1, "4") + edge(1, 9) + edge(1, 2) + edge(2, 4) + edge(9, 4));
    std::string order;
    for (const auto& layer : profile.layers)
        order += layer.name;
    CHECK(order == "abcd");
}

TEST_CASE("variants of the format that PipeDream writes are accepted", "[profile][graph]") {
    CHECK(graph("node1 -- a -- forward_compute_time=1.0, backward_compute_time=2.0, "
                "activation_size=[4.0; 8.0], parameter_size=4.000 -- stage_id=3\r\n\n")
              .layers.size() == 1);
    CHECK(graph("node1 -- a -- parameter_size=1e3, backward_compute_time=2, "
                "forward_compute_time=1")
              .bytes() == 1000);
}

TEST_CASE("a malformed graph is refused with file, line and cause", "[profile][graph]") {
    const std::string good = node(1, "Input", 1, 0, "0.000") + node(2, "Conv2d(a)", 1, 2, "8.000");
    const auto [text, complaint] = GENERATE_COPY(table<std::string, std::string>({
        {"", "m.graph.txt:1: the file ends without a single layer"},
        {node(1, "Input", 1, 0, "0"), "m.graph.txt:2: the file ends without a single layer"},
        {node(1, "ReLU", 1, 1, "0"), "m.graph.txt:2: no layer has parameters"},
        {good + "node3 -- Linear(b)\n", "m.graph.txt:3: a node line is \"nodeN -- LAYER"},
        {good + "node3 --  -- forward_compute_time=1, backward_compute_time=1, parameter_size=1\n",
         "m.graph.txt:3: the layer has no name"},
        {good + "node3 -- b -- backward_compute_time=1, parameter_size=4\n",
         "m.graph.txt:3: forward_compute_time is missing"},
        {good + "node3 -- b -- forward_compute_time=1, parameter_size=4\n",
         "m.graph.txt:3: backward_compute_time is missing"},
        {good + "node3 -- b -- forward_compute_time=1, backward_compute_time=1\n",
         "m.graph.txt:3: parameter_size is missing"},
        {good + "node3 -- b -- forward_compute_time, backward_compute_time=1, parameter_size=4\n",
         "m.graph.txt:3: \"forward_compute_time\" is not KEY=VALUE"},
        {good + "node3 -- b -- forward_compute_time=, backward_compute_time=1, parameter_size=4\n",
         "m.graph.txt:3: forward_compute_time \"\" is not a number"},
        {good +
             "node3 -- b -- forward_compute_time=1x, backward_compute_time=1, parameter_size=4\n",
         "m.graph.txt:3: forward_compute_time \"1x\" is not a number"},
        {good +
             "node3 -- b -- forward_compute_time=nan, backward_compute_time=1, parameter_size=4\n",
         "m.graph.txt:3: forward_compute_time \"nan\" is not finite"},
        {good +
             "node3 -- b -- forward_compute_time=1, backward_compute_time=inf, parameter_size=4\n",
         "m.graph.txt:3: backward_compute_time \"inf\" is not finite"},
        {good + "node3 -- b -- forward_compute_time=1, backward_compute_time=1e999, "
                "parameter_size=4\n",
         "m.graph.txt:3: backward_compute_time \"1e999\" is not finite"},
        {good +
             "node3 -- b -- forward_compute_time=1, backward_compute_time=-1, parameter_size=4\n",
         "m.graph.txt:3: backward_compute_time \"-1\" is negative"},
        {good +
             "node3 -- b -- forward_compute_time=1e9, backward_compute_time=1, parameter_size=4\n",
         "m.graph.txt:3: forward_compute_time \"1e9\" is too large"},
        {good + node(3, "b", 1, 1, "-4"), "m.graph.txt:3: parameter_size \"-4\" is negative"},
        {good + node(3, "b", 1, 1, "4.5"), "m.graph.txt:3: parameter_size \"4.5\" is not a whole"},
        {good + node(3, "b", 1, 1, "1e30"), "m.graph.txt:3: parameter_size \"1e30\" is too large"},
        {good + node(2, "b", 1, 1, "4"), "m.graph.txt:3: node2 is defined twice, first on line 2"},
        {good + "nodeX -- b -- forward_compute_time=1, backward_compute_time=1, parameter_size=4\n",
         "m.graph.txt:3: \"nodeX\" is not a node name"},
        {good + "node -- b -- forward_compute_time=1, backward_compute_time=1, parameter_size=4\n",
         "m.graph.txt:3: \"node\" is not a node name"},
        {good +
             "layer3 -- b -- forward_compute_time=1, backward_compute_time=1, parameter_size=4\n",
         "m.graph.txt:3: \"layer3\" is not a node name"},
        {good + "\tnode1\n", "m.graph.txt:3: an edge line is"},
        {good + "\tnode1 -- node2 -- node1\n", "m.graph.txt:3: an edge line is"},
        {good + "\tnode1 -- 2\n", "m.graph.txt:3: \"2\" is not a node name"},
        {good + edge(1, 5), "m.graph.txt:3: the edge names node5, which no line above defines"},
        {good + edge(5, 1), "m.graph.txt:3: the edge names node5, which no line above defines"},
        {good + edge(2, 2), "m.graph.txt:2: node2 (Conv2d(a)) needs its own result"},
        {good + node(3, "b", 1, 1, "4") + edge(1, 2) + edge(2, 3) + edge(3, 2),
         "m.graph.txt:2: node2 (Conv2d(a)) needs its own result: the edges form a cycle"},
    }));
    INFO(text);
    CHECK_THAT(graph_error(text), StartsWith(complaint));
}

TEST_CASE("a CSV is read, with quoted fields", "[profile][csv]") {
    const auto profile = parse_csv(header +
                                       "0,\"Conv2d(3, 64)\",1.5,2.5,400\n"
                                       "1,plain,0,0.001,8\r\n"
                                       "2,\"a \"\"quoted\"\" name\",3,4,1.2e3\n\n",
                                   "dir/net.csv");
    REQUIRE(profile);
    CHECK(profile.value().name == "net");
    const auto& layers = profile.value().layers;
    REQUIRE(layers.size() == 3);
    CHECK(layers[0].name == "Conv2d(3, 64)");
    CHECK(layers[0].forward == 1500us);
    CHECK(layers[1].backward == 1us);
    CHECK(layers[2].name == "a \"quoted\" name");
    CHECK(layers[2].bytes == 1200);
}

TEST_CASE("rows without parameters are folded in a CSV too", "[profile][csv]") {
    const auto profile = parse_csv(header + "0,pre,1,2,0\n1,conv,10,20,4\n2,relu,3,4,0\n", "m.csv");
    REQUIRE(profile);
    REQUIRE(profile.value().layers.size() == 1);
    CHECK(profile.value().layers[0].forward == 14ms);
    CHECK(profile.value().layers[0].backward == 26ms);
}

TEST_CASE("a malformed CSV is refused with file, line and cause", "[profile][csv]") {
    const auto [text, complaint] = GENERATE_COPY(table<std::string, std::string>({
        {"", "m.csv:1: the file ends without a single layer"},
        {header, "m.csv:2: the file ends without a single layer"},
        {"0,a,1,2,3\n", "m.csv:1: the first line must be \"idx,layer,fwd_ms,bwd_ms,param_bytes\""},
        {header + "0,a,1,2,0\n", "m.csv:3: no layer has parameters"},
        {header + "0,a,1,2\n", "m.csv:2: 4 fields, expected 5"},
        {header + "0,Conv2d(3, 64),1,2,4\n", "m.csv:2: 6 fields, expected 5"},
        {header + "zero\n", "m.csv:2: 1 field, expected 5"},
        {header + "0,a,1,2,4\n2,b,1,2,4\n", "m.csv:3: idx \"2\", expected 1"},
        {header + "x,a,1,2,4\n", "m.csv:2: idx \"x\", expected 0"},
        {header + "0,,1,2,4\n", "m.csv:2: the layer has no name"},
        {header + "0,a,,2,4\n", "m.csv:2: fwd_ms \"\" is not a number"},
        {header + "0,a,one,2,4\n", "m.csv:2: fwd_ms \"one\" is not a number"},
        {header + "0,a,-1,2,4\n", "m.csv:2: fwd_ms \"-1\" is negative"},
        {header + "0,a,1,NaN,4\n", "m.csv:2: bwd_ms \"NaN\" is not finite"},
        {header + "0,a,1,-inf,4\n", "m.csv:2: bwd_ms \"-inf\" is not finite"},
        {header + "0,a,1,2,-4\n", "m.csv:2: param_bytes \"-4\" is negative"},
        {header + "0,a,1,2,4.5\n", "m.csv:2: param_bytes \"4.5\" is not a whole number"},
        {header + "0,\"a,1,2,4\n", "m.csv:2: a quoted field is not closed"},
        {header + "0,\"a\"b,1,2,4\n", "m.csv:2: text after the closing quote of field 2"},
    }));
    INFO(text);
    CHECK_THAT(csv_error(text), StartsWith(complaint));
}

TEST_CASE("the content of a file decides how it is read", "[profile][load]") {
    const TemporaryFile csv(header + "0,a,1,2,4\n");
    CHECK(load_profile(csv.path()));
    const TemporaryFile graph_file("\n" + node(1, "a", 1, 2, "4"));
    CHECK(load_profile(graph_file.path()));
}

TEST_CASE("a file that is no profile is refused", "[profile][load]") {
    const auto message = [](const std::filesystem::path& path) {
        const auto profile = load_profile(path);
        REQUIRE_FALSE(profile);
        return profile.error().message;
    };
    CHECK(message("/no/such/file.csv") == "/no/such/file.csv: no such file");
    CHECK_THAT(message("/"), Contains("is a directory"));
    CHECK_THAT(message(TemporaryFile("").path()), Contains(":1: the file is empty"));
    CHECK_THAT(message(TemporaryFile(" \n\t\n").path()), Contains(":1: the file is empty"));
    CHECK_THAT(message(TemporaryFile("hello\n").path()),
               Contains(":1: neither PipeDream's graph.txt"));
    CHECK_THAT(message(TemporaryFile(std::string(1000, '\0')).path()), Contains(":1: neither"));
}

TEST_CASE("a graph and the CSV with the same figures agree", "[profile]") {
    const Profile from_graph = graph(node(1, "Input", 17.972, 0, "0.000") +
                                     node(2, "Conv2d(3, 64)", 22.307, 24.613, "7168.000") +
                                     node(3, "ReLU(inplace)", 4.446, 5.553, "0.000") +
                                     node(4, "Linear(4, 4)", 46.201, 113.330, "147712.000") +
                                     edge(1, 2) + edge(2, 3) + edge(3, 4));
    const auto from_csv = parse_csv(header +
                                        "0,\"Conv2d(3, 64)\",26.753,30.166,7168\n"
                                        "1,\"Linear(4, 4)\",46.201,113.330,147712\n",
                                    "m.csv");
    REQUIRE(from_csv);
    REQUIRE(from_graph.layers.size() == from_csv.value().layers.size());
    for (std::size_t i = 0; i < from_graph.layers.size(); ++i) {
        CHECK(from_graph.layers[i].name == from_csv.value().layers[i].name);
        CHECK(from_graph.layers[i].forward == from_csv.value().layers[i].forward);
        CHECK(from_graph.layers[i].backward == from_csv.value().layers[i].backward);
        CHECK(from_graph.layers[i].bytes == from_csv.value().layers[i].bytes);
    }
}
