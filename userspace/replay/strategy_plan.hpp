// SPDX-License-Identifier: MIT
//
// How the layers of a model are cut up and spread over parameter servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/profile.hpp"

namespace mercury::replay {

/// What travels as a unit between the workers and one server. Never empty.
struct Chunk {
    std::uint32_t layer = 0;
    std::uint32_t server = 0;
    std::uint64_t bytes = 0;

    friend bool operator==(const Chunk&, const Chunk&) = default;
};

/// The chunks of a model in the order of its layers, from the input: a chunk's index is its
/// priority within an iteration.
class Plan {
  public:
    /// Each layer in equal shares, one a server; the share of a server may be nothing.
    static Plan shards(const Profile& profile, std::size_t servers);

    /// Each layer in slices of SLICE bytes and a rest, dealt to the servers in turn.
    static Plan slices(const Profile& profile, std::size_t servers, std::uint64_t slice);

    const std::vector<Chunk>& chunks() const { return chunks_; }

    /// Indices of the chunks of LAYER: first, and one behind the last.
    struct Range {
        std::uint32_t first = 0;
        std::uint32_t end = 0;
    };
    Range of_layer(std::size_t layer) const { return layers_.at(layer); }

  private:
    std::vector<Chunk> chunks_;
    std::vector<Range> layers_;
};

}  // namespace mercury::replay
