// SPDX-License-Identifier: MIT
#include "common/logging.hpp"

#include <cstdlib>
#include <memory>

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace mercury {
namespace {

/// JOURNAL_STREAM is "DEVICE:INODE" of the journal's socket, and stays set when standard error goes
/// elsewhere.
bool stderr_is_journal() {
    const char* const stream = std::getenv("JOURNAL_STREAM");
    struct stat status {};
    return stream != nullptr && fstat(STDERR_FILENO, &status) == 0 &&
           fmt::format("{}:{}", status.st_dev, status.st_ino) == stream;
}

/// Those of syslog(3).
int priority_of(spdlog::level::level_enum level) {
    switch (level) {
        case spdlog::level::critical:
            return 2;
        case spdlog::level::err:
            return 3;
        case spdlog::level::warn:
            return 4;
        case spdlog::level::info:
            return 6;
        default:
            return 7;
    }
}

class PriorityFlag final : public spdlog::custom_flag_formatter {
  public:
    void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
                spdlog::memory_buf_t& out) override {
        fmt::format_to(std::back_inserter(out), "<{}>", priority_of(message.level));
    }
    std::unique_ptr<custom_flag_formatter> clone() const override {
        return spdlog::details::make_unique<PriorityFlag>();
    }
};

}  // namespace

void log_to_stderr(const std::string& name) {
    if (!stderr_is_journal()) {
        spdlog::set_default_logger(spdlog::stderr_color_mt(name));
        spdlog::set_pattern(name + ": %^%l%$: %v");
        return;
    }
    spdlog::set_default_logger(spdlog::stderr_logger_mt(name));
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<PriorityFlag>('*').set_pattern("%*%v");
    spdlog::set_formatter(std::move(formatter));
}

std::string printable(std::string_view text) {
    std::string shown;
    for (const char c : text) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            shown += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        else
            shown += c;
    }
    return shown;
}

}  // namespace mercury
