// SPDX-License-Identifier: MIT
#include "common/reactor.hpp"

#include <memory>
#include <string>
#include <vector>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>

using namespace mercury;

namespace {

/// Descriptors that are ready as often as they were told, and write down when they are served.
class Sources {
  public:
    explicit Sources(Reactor& reactor) : reactor_(reactor) {}

    int add(const std::string& name, unsigned count, unsigned rank, const void* group = nullptr) {
        fds_.emplace_back(eventfd(count, EFD_NONBLOCK | EFD_SEMAPHORE));
        const int fd = fds_.back().get();
        left_ += count;
        REQUIRE(reactor_
                    .watch(
                        fd, EPOLLIN,
                        [this, fd, name](std::uint32_t /*events*/) -> Result<void> {
                            eventfd_t unused = 0;
                            eventfd_read(fd, &unused);
                            served += name;
                            if (--left_ == 0)
                                reactor_.stop();
                            return {};
                        },
                        rank, group)
                    .has_value());
        return fd;
    }

    std::string served;

  private:
    Reactor& reactor_;
    std::vector<Fd> fds_;
    unsigned left_ = 0;
};

}  // namespace

TEST_CASE("while a lower rank is ready, no higher one is served") {
    Reactor reactor;
    Sources sources(reactor);
    sources.add("c", 3, 2);
    sources.add("a", 3, 0);
    sources.add("b", 3, 1);
    REQUIRE(reactor.run().has_value());
    REQUIRE(sources.served == "aaabbbccc");
}

TEST_CASE("equal ranks take turns") {
    Reactor reactor;
    Sources sources(reactor);
    sources.add("a", 3, 0);
    sources.add("b", 3, 0);
    REQUIRE(reactor.run().has_value());
    REQUIRE(sources.served == "ababab");
}

TEST_CASE("a group does not hold up another one, whatever the ranks") {
    Reactor reactor;
    Sources sources(reactor);
    const int one = 1;
    const int two = 2;
    sources.add("a", 4, 0, &one);
    sources.add("b", 2, 5, &one);
    sources.add("x", 4, 7, &two);
    sources.add("y", 2, 9, &two);
    REQUIRE(reactor.run().has_value());
    REQUIRE(sources.served == "axaxaxaxbyby");
}

TEST_CASE("a handler may unwatch itself and others") {
    Reactor reactor;
    std::string served;
    const Fd a(eventfd(1, EFD_NONBLOCK));
    const Fd b(eventfd(1, EFD_NONBLOCK));
    const auto handler = [&](const char* name) {
        return [&, name](std::uint32_t /*events*/) -> Result<void> {
            served += name;
            reactor.unwatch(a.get());
            reactor.unwatch(b.get());
            reactor.stop();
            return {};
        };
    };
    REQUIRE(reactor.watch(a.get(), EPOLLIN, handler("a")).has_value());
    REQUIRE(reactor.watch(b.get(), EPOLLIN, handler("b")).has_value());
    REQUIRE(reactor.run().has_value());
    REQUIRE(served.size() == 1);
}

TEST_CASE("what was ready at a descriptor is not told to its successor of the same number") {
    Reactor reactor;
    std::string served;
    Fd first(eventfd(1, EFD_NONBLOCK));
    Fd second(eventfd(1, EFD_NONBLOCK));
    // Whichever is served first replaces the other one by one that is not ready.
    const auto replace = [&](Fd& own, Fd& other, const char* name) {
        return [&, name](std::uint32_t /*events*/) -> Result<void> {
            served += name;
            reactor.unwatch(own.get());
            const int number = other.get();
            reactor.unwatch(number);
            const Fd fresh(eventfd(0, EFD_NONBLOCK));
            REQUIRE(dup2(fresh.get(), number) == number);
            REQUIRE(reactor
                        .watch(number, EPOLLIN,
                               [&](std::uint32_t /*events*/) -> Result<void> {
                                   served += "wrong";
                                   return {};
                               })
                        .has_value());
            return {};
        };
    };
    REQUIRE(reactor.watch(first.get(), EPOLLIN, replace(first, second, "1")).has_value());
    REQUIRE(reactor.watch(second.get(), EPOLLIN, replace(second, first, "2")).has_value());
    Timer timer;
    REQUIRE(timer
                .attach(reactor,
                        [&]() -> Result<void> {
                            reactor.stop();
                            return {};
                        })
                .has_value());
    REQUIRE(timer.arm(Clock::now() + std::chrono::milliseconds{10}).has_value());
    REQUIRE(reactor.run().has_value());
    REQUIRE(served.size() == 1);
}

TEST_CASE("an error of a handler ends the loop") {
    Reactor reactor;
    const Fd fd(eventfd(1, EFD_NONBLOCK));
    REQUIRE(reactor
                .watch(fd.get(), EPOLLIN,
                       [](std::uint32_t /*events*/) -> Result<void> { return Error{"enough"}; })
                .has_value());
    REQUIRE(reactor.run().error().message == "enough");
}

TEST_CASE("what is not watched cannot be changed") {
    Reactor reactor;
    const Fd fd(eventfd(0, EFD_NONBLOCK));
    REQUIRE(reactor.change(fd.get(), EPOLLIN).error().message ==
            "epoll_ctl: No such file or directory");
    REQUIRE(reactor.change(-1, EPOLLIN).error().message == "epoll_ctl: Bad file descriptor");
    REQUIRE_FALSE(reactor.watch(-1, EPOLLIN, {}).has_value());
}
