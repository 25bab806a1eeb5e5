// SPDX-License-Identifier: MIT
//
// Figures and tables for people.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/snapshot.hpp"
#include "netlink/histogram.hpp"

namespace mercury::cli {

/// In three digits: "0 B", "1.21 KiB", "830 MiB".
std::string bytes_text(std::uint64_t bytes);
/// In three digits: "9.57 Gbit/s".
std::string rate_text(std::uint64_t bytes, std::chrono::nanoseconds interval);
/// In three digits: "1.02us", "131us".
std::string time_text(netlink::Time time);
/// The bucket in which PART of the packets is reached: "<131us", of the last one ">=4.29s". "-"
/// without packets.
std::string quantile_text(netlink::Histogram histogram, double part);
/// COUNT in a second, in three digits.
std::string frequency_text(std::uint64_t count, std::chrono::nanoseconds interval);

/// Columns are as wide as their widest cell; all but the first LEFT and the last LAST of them are
/// flush right. Each line ends with a newline.
std::string table(const std::vector<std::vector<std::string>>& rows, std::size_t left,
                  std::size_t last = 0);

std::string status_text(const Snapshot& snapshot);
std::string stats_text(const Snapshot& snapshot);

}  // namespace mercury::cli
