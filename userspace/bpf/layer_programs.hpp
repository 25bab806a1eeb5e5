// SPDX-License-Identifier: MIT
//
// The socket option of mercury.h in the kernel, by layers.bpf.c: for programs that mark their own
// sockets. It goes when the object does, or the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/result.hpp"
#include "marking/marking.hpp"

namespace mercury::bpf {

struct LayerClass {
    std::size_t last_layer = 0;
    Marking marking;
};

class LayerPrograms {
  public:
    static Result<std::unique_ptr<LayerPrograms>> load();
    LayerPrograms(const LayerPrograms&) = delete;
    LayerPrograms& operator=(const LayerPrograms&) = delete;
    virtual ~LayerPrograms() = default;

    /// Processes of USER may mark sockets for the layers of job NUMBER, which are in CLASSES.
    virtual Result<void> allow(std::uint32_t user, unsigned number,
                               const std::vector<LayerClass>& classes) = 0;
    virtual void forbid(std::uint32_t user, unsigned number) = 0;

    /// That were marked.
    virtual std::uint64_t sockets() const = 0;

  protected:
    LayerPrograms() = default;
};

}  // namespace mercury::bpf
