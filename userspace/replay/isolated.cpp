// SPDX-License-Identifier: MIT
#include "replay/isolated.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

/// What has come from the child, cut into lines.
class LineReader {
  public:
    LineReader(const Fd& pipe, const std::function<void(const std::string&)>& line)
        : pipe_(pipe), line_(line) {}

    /// False at the end.
    bool read_some() {
        std::array<char, 65536> buffer{};
        const ssize_t got = read(pipe_.get(), buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR)
            return true;
        if (got <= 0)
            return false;
        pending_.append(buffer.data(), static_cast<std::size_t>(got));
        for (auto end = pending_.find('\n'); end != std::string::npos; end = pending_.find('\n')) {
            line_(pending_.substr(0, end));
            pending_.erase(0, end + 1);
        }
        return true;
    }

  private:
    const Fd& pipe_;
    const std::function<void(const std::string&)>& line_;
    std::string pending_;
};

[[noreturn]] void be_child(pid_t parent, const std::function<void(const Fd&)>& work,
                           const Fd& pipe) {
    // However the parent ends, this process does not outlive it.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        work(pipe);
    std::fflush(nullptr);
    _exit(EXIT_SUCCESS);
}

/// 0 when the child has closed its end, or else the signal.
int wait_for(LineReader& reader, const Fd& pipe, int interrupt_fd) {
    std::array<pollfd, 2> ready{{{pipe.get(), POLLIN, 0}, {interrupt_fd, POLLIN, 0}}};
    for (;;) {
        if (poll(ready.data(), ready.size(), -1) < 0)
            continue;  // EINTR
        if (ready[1].revents != 0) {
            signalfd_siginfo info{};
            const bool whole = read(interrupt_fd, &info, sizeof(info)) == sizeof(info);
            return whole ? static_cast<int>(info.ssi_signo) : SIGINT;
        }
        if (ready[0].revents != 0 && !reader.read_some())
            return 0;
    }
}

std::string failure_of(int status) {
    if (WIFSIGNALED(status))
        return fmt::format("ended by signal {} ({})", WTERMSIG(status),
                           strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != EXIT_SUCCESS)
        return fmt::format("ended with exit status {}", WEXITSTATUS(status));
    return {};
}

}  // namespace

void write_line(const Fd& pipe, std::string_view line) {
    const std::string text = fmt::format("{}\n", line);
    std::string_view left = text;
    while (!left.empty()) {
        const ssize_t written = write(pipe.get(), left.data(), left.size());
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            _exit(EXIT_FAILURE);  // nobody waits any more
        left.remove_prefix(static_cast<std::size_t>(written));
    }
}

IsolatedOutcome run_isolated(const std::function<void(const Fd& pipe)>& work,
                             const std::function<void(const std::string&)>& line,
                             int interrupt_fd) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return {0, system_error("pipe").message};
    const Fd from_child(ends[0]);
    Fd to_parent(ends[1]);

    std::fflush(nullptr);  // or the child would print it again
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0)
        return {0, system_error("fork").message};
    if (child == 0)
        be_child(parent, work, to_parent);
    to_parent = Fd();

    LineReader reader(from_child, line);
    const int interrupt = wait_for(reader, from_child, interrupt_fd);
    if (interrupt != 0)
        kill(child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return {interrupt, interrupt != 0 ? std::string() : failure_of(status)};
}

}  // namespace mercury::replay
