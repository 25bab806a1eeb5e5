// SPDX-License-Identifier: MIT
#include "replay/isolated.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <vector>

#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace mercury;
using namespace mercury::replay;
using Catch::Matchers::Contains;

namespace {

struct Told {
    IsolatedOutcome outcome;
    std::vector<std::string> lines;
};

Told tell(const std::function<void(const Fd&)>& work, int interrupt_fd = -1) {
    Told told;
    told.outcome = run_isolated(
        work, [&](const std::string& line) { told.lines.push_back(line); }, interrupt_fd);
    return told;
}

bool no_children() {
    return waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
}

}  // namespace

TEST_CASE("lines come across, long ones too", "[isolated]") {
    const std::string long_line(300'000, 'x');
    const Told told = tell([&](const Fd& pipe) {
        write_line(pipe, "one");
        write_line(pipe, "");
        write_line(pipe, long_line);
    });
    CHECK(told.outcome.failure.empty());
    CHECK(told.outcome.interrupt == 0);
    CHECK(told.lines == std::vector<std::string>{"one", "", long_line});
    CHECK(no_children());
}

TEST_CASE("the work changes nothing here", "[isolated]") {
    int value = 1;
    const Told told = tell([&](const Fd&) { value = 2; });
    CHECK(told.outcome.failure.empty());
    CHECK(value == 1);
}

TEST_CASE("a crash is the child's alone", "[isolated]") {
    const Told told = tell([](const Fd& pipe) {
        write_line(pipe, "before");
        raise(SIGKILL);
        write_line(pipe, "after");
    });
    CHECK_THAT(told.outcome.failure, Contains("ended by signal 9 (Killed)"));
    CHECK(told.lines == std::vector<std::string>{"before"});
    CHECK(tell([](const Fd&) { _exit(3); }).outcome.failure == "ended with exit status 3");
    CHECK(no_children());
}

TEST_CASE("an interrupt ends a child that hangs", "[isolated]") {
    sigset_t set;
    sigset_t before;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    REQUIRE(pthread_sigmask(SIG_BLOCK, &set, &before) == 0);
    const Fd interrupt(signalfd(-1, &set, SFD_CLOEXEC));
    REQUIRE(interrupt);
    const pid_t self = getpid();
    const Told told = tell(
        [&](const Fd&) {
            kill(self, SIGTERM);
            for (;;)
                pause();
        },
        interrupt.get());
    CHECK(told.outcome.interrupt == SIGTERM);
    CHECK(no_children());
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}
