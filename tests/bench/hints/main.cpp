// SPDX-License-Identifier: MIT
//
// bench_hints: how long it takes to have a socket assigned by mercuryd, beside what that cannot do
// without. Prints its times as JSON, then keeps everything open until standard input ends.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "common/descriptors.hpp"
#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "hints/mercury.hpp"

namespace {

using namespace mercury;
using Nanoseconds = std::vector<std::int64_t>;

constexpr std::size_t layers_of_job = 16;
constexpr std::size_t classes_of_job = 4;
constexpr std::uint32_t lowat = 128 << 10;

// As long as an assign and its answer are.
constexpr std::size_t question_bytes = 45;
constexpr std::size_t answer_bytes = 40;

[[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error(what);
}

std::vector<Fd> sockets(std::size_t count) {
    std::vector<Fd> made;
    for (std::size_t i = 0; i < count; ++i) {
        made.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!made.back())
            fail(system_error("socket").message);
    }
    return made;
}

/// The time of WORK(i), COUNT times.
Nanoseconds times_of(std::size_t count, const std::function<void(std::size_t)>& work) {
    Nanoseconds times;
    times.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto begin = Clock::now();
        work(i);
        times.push_back(
            std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
    }
    return times;
}

Nanoseconds bare_setsockopt(std::size_t count) {
    const auto fresh = sockets(count);
    return times_of(count, [&](std::size_t i) {
        const std::uint32_t mark = 1;
        if (setsockopt(fresh[i].get(), SOL_SOCKET, SO_MARK, &mark, sizeof(mark)) != 0)
            fail(system_error("SO_MARK").message);
    });
}

/// Another thread answers.
Nanoseconds bare_round_trip(std::size_t count) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        fail(system_error("socketpair").message);
    const Fd asks(ends[0]);
    Fd answers(ends[1]);
    std::thread other([&answers] {
        char message[question_bytes];
        while (recv(answers.get(), message, sizeof(message), 0) > 0)
            send(answers.get(), message, answer_bytes, MSG_NOSIGNAL);
    });
    const auto times = times_of(count, [&](std::size_t) {
        char message[question_bytes]{};
        if (send(asks.get(), message, sizeof(message), MSG_NOSIGNAL) < 0 ||
            recv(asks.get(), message, sizeof(message), 0) != answer_bytes)
            fail("the other thread does not answer");
    });
    shutdown(asks.get(), SHUT_RDWR);
    other.join();
    return times;
}

/// A client with a job, and sockets that it has assigned.
class Trainer {
  public:
    Trainer(const std::string& path, const std::string& job, std::size_t count)
        : client_(path), sockets_(sockets(count)) {
        client_.set_timeout(std::chrono::seconds(60));
        const std::vector<mercury_layer> layers(layers_of_job, {"layer", 1 << 20, 0, 0});
        if (client_.job(job, layers, classes_of_job) != MERCURY_DONE)
            fail(client_.status().why);
    }

    Nanoseconds assign_all() {
        return times_of(sockets_.size(), [this](std::size_t i) {
            if (client_.assign(sockets_[i].get(), i % layers_of_job, lowat) != MERCURY_DONE)
                fail(client_.error());
        });
    }

    /// The daemon counts them for as long as the client is connected.
    void close_sockets() { sockets_.clear(); }

  private:
    HintClient client_;
    std::vector<Fd> sockets_;
};

/// All at once, each in a thread of its own; the times of all.
Nanoseconds assign_at_once(std::vector<Trainer>& trainers) {
    std::vector<Nanoseconds> each(trainers.size());
    std::atomic<bool> begin = false;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < trainers.size(); ++i) {
        threads.emplace_back([&, i] {
            begin.wait(false);
            each[i] = trainers[i].assign_all();
        });
    }
    begin = true;
    begin.notify_all();
    for (std::thread& thread : threads)
        thread.join();
    Nanoseconds all;
    for (const Nanoseconds& times : each)
        all.insert(all.end(), times.begin(), times.end());
    return all;
}

}  // namespace

int main(int argc, char** argv) {
    std::string path;
    std::size_t count = 0;
    std::size_t clients = 0;
    CLI::App app("Measures once how long mercuryd takes to assign a socket.", "bench_hints");
    app.add_option("socket", path, "of mercuryd")->required();
    app.add_option("sockets", count, "of each measurement")
        ->required()
        ->check(CLI::Range(1, 30000));
    app.add_option("clients", clients, "at once")->required()->check(CLI::Range(1, 255));
    CLI11_PARSE(app, argc, argv);
    raise_descriptor_limit();
    try {
        nlohmann::json json;
        json["setsockopt"] = bare_setsockopt(count);
        json["round_trip"] = bare_round_trip(count);
        Trainer one(path, "one", count);
        json["one_job"] = one.assign_all();
        one.close_sockets();
        std::vector<Trainer> trainers;
        for (std::size_t i = 0; i < clients; ++i)
            trainers.emplace_back(path, "many", (count + clients - 1) / clients);
        json["many_clients"] = assign_at_once(trainers);
        std::cout << json << std::endl;
        std::cin.get();
    } catch (const std::exception& problem) {
        std::cerr << "bench_hints: " << problem.what() << '\n';
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
