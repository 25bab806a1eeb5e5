// SPDX-License-Identifier: MIT
//
// A server or a worker as a process of its own, for tests that kill it, stop it or lie to it.
//
// The server prints "listening HOST:PORT", then what it logs, a line each; SIGTERM stops it. The
// worker prints "joined" or "error TEXT", then takes a command a line and answers each with a line,
// "ok [RESULT]" or "error TEXT":
//   push KEY VALUE    starts a round of KEY, whose element i is VALUE * (1 + i % 7)
//   wait KEY          until the round has come back
//   call KEY VALUE    as push, but with a callback
//   called KEY        until the callback has come, and what it was told
//   check KEY VALUE   whether KEY holds VALUE * (1 + i % 7) now
//   marking           who marks its connections (MarkedBy), job, connections, marked ones, and why
//   leave             leaves the job, as the end of the input does
#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "transport/server.hpp"
#include "transport/worker.hpp"

namespace {

using namespace mercury;
using namespace mercury::transport;

using Milliseconds = std::chrono::milliseconds;

void say(const std::string& line) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    std::cout << line << std::endl;
}

int fail(const Error& error) {
    say("error " + error.message);
    return 1;
}

void add_time(CLI::App& app, const char* name, Milliseconds& time) {
    app.add_option_function<std::int64_t>(name,
                                          [&time](std::int64_t ms) { time = Milliseconds{ms}; });
}

Server* running = nullptr;

int serve(const std::string& listen, ServerOptions options) {
    options.log = [](const std::string& text) { say("log " + text); };
    const auto address = Address::parse(listen);
    if (!address)
        return fail(address.error());
    auto server = Server::create(address.value().front(), std::move(options));
    if (!server)
        return fail(server.error());
    running = server.value().get();
    std::signal(SIGTERM, [](int) { running->stop(); });
    say("listening " + running->address().to_string());
    const auto done = running->run();
    return done ? 0 : fail(done.error());
}

/// KEY:TYPE:ELEMENTS:CLASS:REDUCTION
Result<Tensor> tensor_from(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> words;
    for (std::string word; std::getline(stream, word, ':');)
        words.push_back(word);
    if (words.size() != 5)
        return Error{fmt::format("\"{}\" is not KEY:TYPE:ELEMENTS:CLASS:REDUCTION", text)};
    const auto type = parse_element_type(words[1]);
    const auto reduction = parse_reduction(words[4]);
    if (!type || !reduction)
        return type ? reduction.error() : type.error();
    return Tensor{words[0], type.value(), std::stoull(words[2]),
                  static_cast<unsigned>(std::stoul(words[3])), reduction.value()};
}

/// A tensor with its buffer; for checks in f32 only.
struct Held {
    std::vector<float> values;
    Worker::Ticket ticket;
    std::optional<Result<void>> called;
};

float pattern(std::size_t index, float value) {
    return value * static_cast<float>(1 + index % 7);
}

class Console {
  public:
    Console(std::unique_ptr<Worker> worker, const std::vector<Tensor>& tensors)
        : held_(tensors.size()), worker_(std::move(worker)) {
        for (std::size_t i = 0; i < tensors.size(); ++i)
            held_[i].values.resize((tensors[i].elements * size_of(tensors[i].type) + 3) / 4);
    }

    /// What to answer.
    std::string obey(const std::string& line) {
        std::istringstream words(line);
        std::string verb;
        std::string key;
        float value = 0;
        words >> verb >> key >> value;
        if (verb == "leave") {
            worker_.reset();
            return "ok";
        }
        if (verb == "marking") {
            const auto now = worker_->marking();
            return fmt::format("ok {} {} {} {} {}", static_cast<int>(now.by), now.job,
                               now.connections, now.marked, now.why);
        }
        const auto index = worker_->index_of(key);
        if (!index)
            return "error no tensor " + key;
        Held& held = held_[*index];
        if (verb == "push" || verb == "call")
            return push(*index, value, verb == "call");
        if (verb == "wait")
            return text_of(worker_->wait(held.ticket));
        if (verb == "called")
            return await_call(held);
        if (verb == "check")
            return check(held.values, value);
        return "error unknown command " + verb;
    }

  private:
    static std::string text_of(const Result<void>& outcome) {
        return outcome ? "ok" : "error " + outcome.error().message;
    }

    std::string push(std::size_t index, float value, bool with_callback) {
        Held& held = held_[index];
        for (std::size_t i = 0; i < held.values.size(); ++i)
            held.values[i] = pattern(i, value);
        Worker::Callback callback;
        if (with_callback) {
            callback = [this, &held](const Result<void>& outcome) {
                const std::lock_guard lock(mutex_);
                held.called = outcome;
                changed_.notify_all();
            };
        }
        const auto ticket = worker_->push_pull(
            index, std::as_writable_bytes(std::span(held.values)), std::move(callback));
        if (!ticket)
            return "error " + ticket.error().message;
        held.ticket = ticket.value();
        return fmt::format("ok {}", held.ticket.round);
    }

    std::string await_call(Held& held) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return held.called.has_value(); });
        return text_of(*std::exchange(held.called, std::nullopt));
    }

    static std::string check(const std::vector<float>& values, float value) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (values[i] != pattern(i, value)) {
                return fmt::format("error element {} is {} instead of {}", i, values[i],
                                   pattern(i, value));
            }
        }
        return "ok";
    }

    std::vector<Held> held_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::unique_ptr<Worker> worker_;  // the last one: it may call back until it has gone
};

int work(WorkerOptions options, const std::vector<std::string>& shapes) {
    std::vector<Tensor> tensors;
    for (const std::string& shape : shapes) {
        const auto tensor = tensor_from(shape);
        if (!tensor)
            return fail(tensor.error());
        tensors.push_back(tensor.value());
    }
    auto worker = Worker::join(std::move(options), tensors);
    if (!worker)
        return fail(worker.error());
    say("joined");
    Console console(std::move(worker).value(), tensors);
    for (std::string line; std::getline(std::cin, line);) {
        say(console.obey(line));
        if (line == "leave")
            break;
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"One end of the push-pull transport, for tests"};
    app.require_subcommand(1);

    auto& server = *app.add_subcommand("server");
    std::string listen = "127.0.0.1:0";
    ServerOptions server_options;
    server.add_option("--listen", listen);
    server.add_option("--token", server_options.token);
    server.add_option("--in-flight", server_options.in_flight);
    server.add_option("--hints", server_options.hints);
    server.add_option("--max-jobs", server_options.limits.jobs);
    server.add_option("--max-workers", server_options.limits.workers);
    server.add_option("--max-classes", server_options.limits.classes);
    server.add_option("--max-tensors", server_options.limits.tensors);
    server.add_option("--max-memory", server_options.limits.memory);
    server.add_option("--max-connections", server_options.limits.connections);
    server.add_flag("--whole-ranges", server_options.whole_ranges);
    add_time(server, "--silence-ms", server_options.silence);
    add_time(server, "--join-ms", server_options.join_time);
    add_time(server, "--stall-ms", server_options.stall);

    auto& worker = *app.add_subcommand("worker");
    WorkerOptions worker_options;
    std::vector<std::string> tensors;
    std::string order = "arrival";
    worker.add_option("--job", worker_options.job)->required();
    worker.add_option("--token", worker_options.token);
    worker.add_option("--rank", worker_options.rank);
    worker.add_option("--workers", worker_options.workers);
    worker.add_option("--server", worker_options.servers);
    worker.add_option("--in-flight", worker_options.in_flight);
    worker.add_option("--hints", worker_options.hints);
    worker.add_option("--order", order);
    worker.add_option("--tensor", tensors);
    add_time(worker, "--silence-ms", worker_options.silence);
    add_time(worker, "--join-ms", worker_options.join_time);

    CLI11_PARSE(app, argc, argv);
    if (server)
        return serve(listen, std::move(server_options));
    const auto parsed = parse_sum_order(order);
    if (!parsed)
        return fail(parsed.error());
    worker_options.order = parsed.value();
    return work(std::move(worker_options), tensors);
}
