// SPDX-License-Identifier: MIT
//
// Other people's traffic: an unmarked bulk transfer, such as that of a checkpoint to storage.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "common/fd.hpp"

namespace mercury::replay {

/// Sends as fast as the connection takes it, from construction to destruction.
class Upload {
  public:
    Upload(Fd from, Fd to);
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;
    ~Upload();

    /// Bytes that have arrived so far.
    std::uint64_t received() const { return received_; }

    /// Bits a second that have arrived so far.
    double goodput() const;

  private:
    void send_all() const;
    void receive_all();

    Fd from_;
    Fd to_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::atomic<std::uint64_t> received_{0};
    std::thread sender_;
    std::thread receiver_;
};

}  // namespace mercury::replay
