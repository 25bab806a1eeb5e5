// SPDX-License-Identifier: MIT
#include "replay/case_progress.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/fd.hpp"

namespace mercury::replay {
namespace {

/// Measured in User-Mode Linux on two cores; the estimate soon rests on the cases already run.
constexpr double seconds_per_gigabyte = 1.5;
/// To build the network, connect everything and take it down again.
constexpr double seconds_per_host = 0.15;
/// Work that says more about this machine than the figures above.
constexpr double work_that_counts = 3;

}  // namespace

bool virtual_time() {
    std::ifstream file("/proc/cmdline");
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    return line.find("time-travel") != std::string::npos;
}

double expected_seconds(const ClusterCase& one, bool in_virtual_time) {
    const auto repeats = static_cast<double>(one.run.repeats);
    const double set_up = static_cast<double>(one.network.hosts) * seconds_per_host * repeats;
    if (in_virtual_time)
        return set_up + bytes_moved(one) / 1e9 * seconds_per_gigabyte;
    double longest = 0;
    for (const CaseJob& job : one.jobs)
        longest = std::max(longest, to_ms(bound_of(job, one.network).total()) / 1e3);
    return set_up + repeats * longest * static_cast<double>(one.run.warm_up + one.run.iterations);
}

WallClock::WallClock(bool in_virtual_time, std::string scratch)
    : virtual_(in_virtual_time), scratch_(std::move(scratch)) {}

double WallClock::seconds() const {
    using Seconds = std::chrono::duration<double>;
    const double own = Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
    if (!virtual_)
        return own;
    // The machine around the guest stamps the file; the guest only reads that.
    {
        const Fd file(open(scratch_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        if (!file || write(file.get(), "", 1) != 1)
            return own;
    }
    struct stat status {};
    const bool known = stat(scratch_.c_str(), &status) == 0;
    unlink(scratch_.c_str());
    return known ? static_cast<double>(status.st_mtim.tv_sec) +
                       static_cast<double>(status.st_mtim.tv_nsec) / 1e9
                 : own;
}

std::string duration_for_people(double seconds) {
    const auto whole = std::llround(std::max(seconds, 0.0));
    if (whole < 100)
        return fmt::format("{} s", whole);
    const auto minutes = (whole + 30) / 60;
    if (minutes < 100)
        return fmt::format("{} min", minutes);
    return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

void ProgressLine::begin(const std::string& name, double work) {
    ++number_;
    name_ = name;
    work_ = work;
}

std::string ProgressLine::time_left(double part, double elapsed) const {
    const double done = work_done_ + part * work_;
    const double left = std::max(work_left_ - part * work_, 0.0);
    const double speed = done >= work_that_counts && elapsed > 0 ? done / elapsed : 1;
    return duration_for_people(left / speed);
}

void ProgressLine::update(const std::string& detail, double part, double elapsed) {
    if (!terminal_)
        return;
    fmt::print(out_, "\r\033[K[{}/{}] {}: {}; {} left", number_, cases_, name_, detail,
               time_left(part, elapsed));
    std::fflush(out_);
}

void ProgressLine::end(const std::string& outcome, double elapsed) {
    work_done_ += work_;
    work_left_ -= work_;
    clear();
    fmt::print(out_, "[{}/{}] {}: {}", number_, cases_, name_, outcome);
    if (number_ < cases_)
        fmt::print(out_, "; {} left", time_left(0, elapsed));
    fmt::print(out_, "\n");
    std::fflush(out_);
    work_ = 0;
}

void ProgressLine::clear() const {
    if (terminal_)
        fmt::print(out_, "\r\033[K");
    std::fflush(out_);
}

}  // namespace mercury::replay
