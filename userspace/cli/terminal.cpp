// SPDX-License-Identifier: MIT
#include "cli/terminal.hpp"

#include <algorithm>
#include <csignal>
#include <string_view>
#include <utility>

#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace mercury::cli {
namespace {

// What every terminal since the VT100 understands: the other screen, the cursor, clearing.
constexpr std::string_view enter = "\033[?1049h\033[?25l";
constexpr std::string_view leave = "\033[?25h\033[?1049l";
constexpr std::string_view home = "\033[H";
constexpr std::string_view clear_line = "\033[K";
constexpr std::string_view clear_below = "\033[J";

void put(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
        if (written < 0)
            return;  // the terminal is gone: SIGHUP says so
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

}  // namespace

Result<std::unique_ptr<Terminal>> Terminal::open() {
    termios before{};
    if (isatty(STDOUT_FILENO) == 0 || tcgetattr(STDIN_FILENO, &before) != 0)
        return Error{"this needs a terminal; \"stats --watch\" does not"};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    Fd resized(signalfd(-1, &set, SFD_CLOEXEC));
    if (!resized)
        return system_error("signalfd");
    termios raw = before;
    raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO));
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // stopped, it would leave the screen as it is
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0)
        return system_error("terminal");
    put(enter);
    return std::unique_ptr<Terminal>(new Terminal(std::move(resized), before));
}

Terminal::~Terminal() {
    put(leave);
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

Size Terminal::size() const {
    winsize window{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0)
        return {};
    return {window.ws_col, window.ws_row};
}

void Terminal::show(const std::vector<std::string>& lines) const {
    const Size screen = size();
    std::string text(home);
    const std::size_t shown = std::min(lines.size(), screen.lines);
    for (std::size_t i = 0; i < shown; ++i) {
        text += lines[i].substr(0, screen.columns);
        // A full line leaves the cursor on its last letter, which this would clear.
        if (lines[i].size() < screen.columns)
            text += clear_line;
        if (i + 1 < shown)
            text += "\r\n";
    }
    if (shown < screen.lines)
        text += std::string("\r\n") + std::string(clear_below);
    put(text);
}

void Terminal::taken() const {
    signalfd_siginfo info{};
    static_cast<void>(!read(resized_.get(), &info, sizeof(info)));
}

}  // namespace mercury::cli
