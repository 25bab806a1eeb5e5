// SPDX-License-Identifier: MIT
//
// The fuzz target without libFuzzer, for every compiler and a short time: all of the corpus, and
// mutations of it that are the same in each run. hints_short_run CORPUS [ROUNDS [SEED]]
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Random = std::mt19937_64;

std::vector<std::string> read_corpus(const char* folder) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        paths.push_back(entry.path());
    std::ranges::sort(paths);
    std::vector<std::string> corpus;
    for (const auto& path : paths) {
        std::ifstream file(path, std::ios::binary);
        corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return corpus;
}

/// A place in TEXT, or behind its end.
std::size_t place(const std::string& text, Random& random) {
    return random() % (text.size() + 1);
}

/// What JSON and its readers stumble over.
constexpr std::array<const char*, 14> words{
    "\"", "\\u0000", "-1",   "18446744073709551616", "1e99", "null",      "[", "]",
    "{",  "}",       "\xff", "\xed\xa0\x80",         ":",    ",\"type\":"};

void mutate(std::string& text, const std::vector<std::string>& corpus, Random& random) {
    switch (random() % 6) {
        case 0:  // another byte
            if (!text.empty())
                text[random() % text.size()] = static_cast<char>(random());
            return;
        case 1:
            text.insert(place(text, random), words[random() % words.size()]);
            return;
        case 2:
            text.erase(std::min(place(text, random), text.size()), random() % 16);
            return;
        case 3:
            text.resize(place(text, random));
            return;
        case 4: {  // a part of itself again
            const std::size_t from = place(text, random);
            text.insert(place(text, random), std::string(text, from, random() % 64));
            return;
        }
        default: {  // of another
            const std::string& other = corpus[random() % corpus.size()];
            text.insert(place(text, random),
                        std::string(other, place(other, random), random() % 256));
            return;
        }
    }
}

void run(const std::string& text) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        fmt::print(stderr, "usage: hints_short_run CORPUS [ROUNDS [SEED]]\n");
        return 2;
    }
    const auto corpus = read_corpus(argv[1]);
    const unsigned long rounds = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 20'000;
    Random random(argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 1);
    if (corpus.empty()) {
        fmt::print(stderr, "{}: there is no corpus\n", argv[1]);
        return 2;
    }
    for (const std::string& text : corpus)
        run(text);
    for (unsigned long i = 0; i < rounds; ++i) {
        std::string text = corpus[random() % corpus.size()];
        for (std::uint64_t n = 0; n <= random() % 4; ++n)
            mutate(text, corpus, random);
        run(text);
    }
    fmt::print("{} inputs of the corpus, {} mutations\n", corpus.size(), rounds);
    return 0;
}
