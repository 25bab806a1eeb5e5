// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <termios.h>

#include "common/fd.hpp"
#include "common/result.hpp"

namespace mercury::cli {

struct Size {
    std::size_t columns = 80;
    std::size_t lines = 24;
};

/// The terminal at stdin and stdout as one screen, with keys as they are pressed. What was on it is
/// there again when this goes away.
class Terminal {
  public:
    static Result<std::unique_ptr<Terminal>> open();
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;
    ~Terminal();

    Size size() const;
    /// In one write, over what is there, so that nothing flickers. Lines that are too long or too
    /// many are cut.
    void show(const std::vector<std::string>& lines) const;

    /// Readable when the size has changed; taken() forgets it.
    const Fd& resized() const { return resized_; }
    void taken() const;

  private:
    Terminal(Fd resized, const termios& before) : resized_(std::move(resized)), before_(before) {}

    Fd resized_;
    termios before_;
};

}  // namespace mercury::cli
