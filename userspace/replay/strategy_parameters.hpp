// SPDX-License-Identifier: MIT
//
// The parameters of a strategy, read from text.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "common/result.hpp"
#include "replay/strategies.hpp"

namespace mercury::replay {

/// Reads the parameters that a strategy asks for. Whatever is wrong is kept for check(), so that
/// a strategy reads all of them and checks once.
class ParameterReader {
  public:
    /// SPEC must outlive the reader.
    explicit ParameterReader(const StrategySpec& spec) : spec_(spec) {}

    std::uint64_t bytes(const std::string& name, std::uint64_t otherwise, std::uint64_t min,
                        std::uint64_t max);
    std::uint64_t count(const std::string& name, std::uint64_t otherwise, std::uint64_t min,
                        std::uint64_t max);
    std::chrono::nanoseconds time(const std::string& name, std::chrono::nanoseconds otherwise,
                                  std::chrono::nanoseconds max);
    bool yes_no(const std::string& name, bool otherwise);
    /// One of WORDS.
    std::string choice(const std::string& name, const std::string& otherwise,
                       std::span<const std::string_view> words);

    std::optional<std::string> text(const std::string& name);

    /// The first parameter that was wrong, or else one that nobody asked for.
    Result<void> check() const;

  private:
    /// The text of NAME if it was given.
    const std::string* find(const std::string& name);
    void refuse(const std::string& name, const std::string& text, std::string_view allowed);

    const StrategySpec& spec_;
    std::set<std::string> known_;  // asked for so far
    std::optional<Error> wrong_;
};

}  // namespace mercury::replay
