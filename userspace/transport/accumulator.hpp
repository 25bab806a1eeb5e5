// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "transport/element.hpp"
#include "transport/reduce.hpp"

namespace mercury::transport {

/// Sums one range of a tensor over the workers of a job, round after round, byte by byte as it
/// comes, and gives out what is finished at once. No I/O, no threads.
///
/// A position is a place in the endless stream of rounds: offset in the range + (round - 1) *
/// bytes(). Every worker pushes and pulls this stream from 0 on, each at its own pace. All rounds
/// share the memory of one, so that at any time
///     taken() <= finished() <= pushed(worker) <= taken() + bytes(),
/// where taken() is what every worker has pulled and finished() what every worker has pushed. A
/// worker that is ahead waits for the slowest to pull; the slowest never waits: if each takes
/// whatever is ready, somebody has room. (In rank order, a worker also waits for the one before
/// it, and worker 0 for none.)
///
/// An f32 sum of n workers has n - 1 roundings, one for each addition. f16 and bf16 are added up
/// in f32 and rounded once more when the sum is finished. For the mean, the sum is multiplied by
/// 1/n in f32 (two more roundings) before that.
class Accumulator {
  public:
    static constexpr std::size_t workers_max = 4096;

    /// Bytes that one of this shape allocates; SIZE_MAX if that is more than can be counted.
    static std::size_t memory(ElementType type, std::size_t elements, std::size_t workers);

    /// Allocates everything it will ever need. Throws std::invalid_argument without an element, or
    /// if WORKERS is not 1 to workers_max, and std::bad_alloc if there is no memory.
    Accumulator(ElementType type, Reduction reduction, SumOrder order, std::size_t elements,
                std::size_t workers);

    /// The size of the range on the wire.
    std::size_t bytes() const { return bytes_; }
    std::size_t workers() const { return workers_.size(); }

    /// Bytes that WORKER may add now, all in one round. 0: it has to wait until others push or
    /// take.
    std::size_t room(std::size_t worker) const;

    /// WORKER's next bytes, cut anywhere. Throws std::logic_error, and changes nothing, if they are
    /// more than there is room for.
    void add(std::size_t worker, std::span<const std::byte> bytes);

    /// Where WORKER's next bytes may be received at once, instead of being copied: give add() what
    /// has come, from the start of this place, before anything else is done here. Empty, or all the
    /// room there is: it is for the first worker in an f32 sum that comes by, if it is not within
    /// an element.
    std::span<std::byte> place(std::size_t worker);

    /// Finished bytes that WORKER has not taken yet, of one round. They stay where and what they
    /// are until it takes them. Empty: there are none.
    std::span<const std::byte> ready(std::size_t worker) const;

    /// WORKER has got the first BYTES of what is ready for it. Throws std::logic_error, and changes
    /// nothing, if they are more.
    void take(std::size_t worker, std::size_t bytes);

    /// Positions. The begun element of a worker does not count as pushed.
    std::uint64_t pushed(std::size_t worker) const { return workers_[worker].pushed; }
    std::uint64_t pulled(std::size_t worker) const { return workers_[worker].pulled; }
    std::uint64_t finished() const { return finished_; }
    std::uint64_t taken() const { return taken_; }

  private:
    struct Worker {
        std::uint64_t pushed = 0;  // a multiple of the element size
        std::uint64_t pulled = 0;
        std::array<std::byte, 4> begun{};  // first bytes of the element at PUSHED
        std::uint8_t begun_bytes = 0;      // less than the element size
    };
    struct Free {
        void operator()(void* block) const { std::free(block); }
    };
    using Block = std::unique_ptr<std::byte, Free>;
    static Block allocate(std::size_t bytes);

    std::uint64_t end_of_round(std::uint64_t position) const;
    void reduce(Worker& worker, std::span<const std::byte> elements);
    void finish(std::uint64_t end);

    std::size_t size_;   // of an element
    std::size_t bytes_;  // of the range
    SumOrder order_;
    float factor_;  // of the finished sum
    Loops loops_;
    std::vector<Worker> workers_;

    std::uint64_t started_ = 0;   // max of pushed: beyond, memory holds nothing of this round
    std::uint64_t finished_ = 0;  // min of pushed
    std::uint64_t taken_ = 0;     // min of pulled

    Block block_;  // not initialized: what is added to was stored first
    float* sums_;
    std::byte* results_;  // the same memory for f32
};

}  // namespace mercury::transport
