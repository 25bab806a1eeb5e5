// SPDX-License-Identifier: MIT
//
// The simplest strategy there is, to test what drives strategies: whole layers over plain sockets,
// each back when all workers have sent it. It can fail in every way that a strategy may.
#pragma once

#include <memory>

#include "replay/strategies.hpp"

namespace mercury::replay::test {

/// "plain", with fail=connect, push, crash, hang or destroy: at that point. mark=N for SO_MARK and
/// dscp=N of all its sockets.
Result<std::unique_ptr<Strategy>> make_plain(const StrategySpec& spec);

}  // namespace mercury::replay::test
