// SPDX-License-Identifier: MIT
//
// Errors as values: a function that the caller can answer returns Result<T>.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace mercury {

/// What went wrong, as one sentence for the person at the terminal.
struct Error {
    std::string message;
};

/// A value or the reason why there is none. Ask has_value() (or bool) before value().
template <typename T>
class [[nodiscard]] Result {
  public:
    // NOLINTBEGIN(google-explicit-constructor): return either from a function
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
    // NOLINTEND(google-explicit-constructor)

    bool has_value() const { return state_.index() == 0; }
    explicit operator bool() const { return has_value(); }

    // Each throws std::bad_variant_access if there is no such thing: that is a bug of the caller.
    T& value() & { return std::get<0>(state_); }
    const T& value() const& { return std::get<0>(state_); }
    T value() && { return std::get<0>(std::move(state_)); }  // not T&&: safe in a range-for
    const Error& error() const { return std::get<1>(state_); }

  private:
    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

    bool has_value() const { return !error_.has_value(); }
    explicit operator bool() const { return has_value(); }
    const Error& error() const { return error_.value(); }

  private:
    std::optional<Error> error_;
};

}  // namespace mercury
