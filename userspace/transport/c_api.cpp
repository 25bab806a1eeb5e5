// SPDX-License-Identifier: MIT
//
// mercury_transport.h on top of worker.hpp. Nothing is thrown across it.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "transport/in_flight.hpp"
#include "transport/mercury_transport.h"
#include "transport/worker.hpp"

using namespace mercury;
using namespace mercury::transport;

struct mercury_worker {  // NOLINT(readability-identifier-naming): C's
    WorkerOptions options;
    std::vector<Tensor> tensors;
    std::optional<unsigned> marks_of_job;
    std::unique_ptr<Worker> joined;
};

namespace {

constexpr std::size_t classes_max = 16;
constexpr unsigned jobs_max = 256;

struct LastError {
    std::string text;
    const char* said = "";
};
thread_local LastError last_error;

int failed(const char* why) noexcept {
    try {
        last_error.text = why;
        last_error.said = last_error.text.c_str();
    } catch (const std::bad_alloc&) {
        last_error.said = "there is no memory left";
    }
    return MERCURY_FAILED;
}

/// What WORK, which returns Result<int>, makes of it.
template <typename Work>
int guarded(const Work& work) noexcept {
    try {
        const Result<int> outcome = work();
        return outcome ? outcome.value() : failed(outcome.error().message.c_str());
    } catch (const std::bad_alloc&) {
        return failed("there is no memory left");
    } catch (const std::exception& problem) {
        return failed(problem.what());
    } catch (...) {
        return failed("an unknown exception");
    }
}

/// WORK(worker), which cannot fail, on a worker that has not joined yet.
template <typename Work>
int configure(mercury_worker* worker, const Work& work) noexcept {
    return guarded([&]() -> Result<int> {
        if (worker == nullptr)
            return Error{"the worker is NULL"};
        if (worker->joined)
            return Error{"the worker has joined already"};
        return work(*worker);
    });
}

/// WORK(worker) on one that has.
template <typename Work>
int use(const mercury_worker* worker, const Work& work) noexcept {
    return guarded([&]() -> Result<int> {
        if (worker == nullptr)
            return Error{"the worker is NULL"};
        if (!worker->joined)
            return Error{"the worker has not joined yet"};
        return work(*worker->joined);
    });
}

Result<std::string> text(const char* what, const char* given) {
    if (given == nullptr)
        return Error{fmt::format("{} is NULL", what)};
    return std::string(given);
}

/// GIVEN as one of the enumeration Enum, which has the numbers of C's, 0 to LAST.
template <typename Enum>
Result<Enum> value_of(const char* what, int given, int last) {
    if (given < 0 || given > last)
        return Error{fmt::format("there is no {} number {}: 0 to {}", what, given, last)};
    return static_cast<Enum>(given);
}
static_assert(static_cast<int>(ElementType::f32) == MERCURY_ELEMENT_F32 &&
              static_cast<int>(ElementType::f16) == MERCURY_ELEMENT_F16 &&
              static_cast<int>(ElementType::bf16) == MERCURY_ELEMENT_BF16);
static_assert(static_cast<int>(Reduction::sum) == MERCURY_REDUCTION_SUM &&
              static_cast<int>(Reduction::mean) == MERCURY_REDUCTION_MEAN);
static_assert(static_cast<int>(MarkedBy::nobody) == MERCURY_MARKING_NONE &&
              static_cast<int>(MarkedBy::program) == MERCURY_MARKING_MARKS &&
              static_cast<int>(MarkedBy::daemon) == MERCURY_MARKING_DAEMON &&
              static_cast<int>(MarkedBy::priority) == MERCURY_MARKING_PRIORITY);
static_assert(static_cast<int>(SumOrder::arrival) == MERCURY_ORDER_ARRIVAL &&
              static_cast<int>(SumOrder::rank) == MERCURY_ORDER_RANK);

int push_pull(mercury_worker* worker, std::size_t index, void* buffer, std::size_t bytes,
              std::uint64_t* round, Worker::Callback callback) noexcept {
    return use(worker, [&](Worker& joined) -> Result<int> {
        if (buffer == nullptr)
            return Error{"the buffer is NULL"};
        const std::span memory(static_cast<std::byte*>(buffer), bytes);
        const auto ticket = joined.push_pull(index, memory, std::move(callback));
        if (!ticket)
            return ticket.error();
        if (round != nullptr)
            *round = ticket.value().round;
        return 0;
    });
}

Result<int> join(mercury_worker& worker) {
    WorkerOptions options = worker.options;
    if (worker.marks_of_job) {
        std::size_t classes = 1;
        for (const Tensor& tensor : worker.tensors)
            classes = std::max<std::size_t>(classes, std::size_t{tensor.priority_class} + 1);
        Marks marks = default_marks(*worker.marks_of_job, std::min(classes, classes_max));
        options.push_marks = std::move(marks.push);
        options.pull_marks = std::move(marks.pull);
    }
    auto joined = Worker::join(std::move(options), worker.tensors);
    if (!joined)
        return joined.error();
    worker.joined = std::move(joined).value();
    return 0;
}

}  // namespace

const char* mercury_transport_version() {
    return MERCURY_VERSION;
}

const char* mercury_transport_error() {
    return last_error.said;
}

mercury_worker* mercury_worker_new(const char* job, unsigned rank, unsigned workers) {
    mercury_worker* made = nullptr;
    guarded([&]() -> Result<int> {
        auto name = text("the job's name", job);
        if (!name)
            return name.error();
        auto worker = std::make_unique<mercury_worker>();
        worker->options.job = std::move(name).value();
        worker->options.rank = rank;
        worker->options.workers = workers;
        made = worker.release();
        return 0;
    });
    return made;
}

int mercury_worker_add_server(mercury_worker* worker, const char* address) {
    return configure(worker, [&](mercury_worker& own) -> Result<int> {
        auto given = text("the address", address);
        if (!given)
            return given.error();
        own.options.servers.push_back(std::move(given).value());
        return 0;
    });
}

int mercury_worker_add_tensor(mercury_worker* worker, const char* key, int element, size_t elements,
                              unsigned priority_class, int reduction) {
    return configure(worker, [&](mercury_worker& own) -> Result<int> {
        auto name = text("the key", key);
        if (!name)
            return name.error();
        const auto type = value_of<ElementType>("element type", element, MERCURY_ELEMENT_BF16);
        if (!type)
            return type.error();
        const auto how = value_of<Reduction>("reduction", reduction, MERCURY_REDUCTION_MEAN);
        if (!how)
            return how.error();
        own.tensors.push_back(
            {std::move(name).value(), type.value(), elements, priority_class, how.value()});
        return 0;
    });
}

int mercury_worker_set_token(mercury_worker* worker, const char* token) {
    return configure(worker, [&](mercury_worker& own) -> Result<int> {
        auto given = text("the token", token);
        if (!given)
            return given.error();
        own.options.token = std::move(given).value();
        return 0;
    });
}

int mercury_worker_set_order(mercury_worker* worker, int order) {
    return configure(worker, [&](mercury_worker& own) -> Result<int> {
        const auto given = value_of<SumOrder>("order", order, MERCURY_ORDER_RANK);
        if (!given)
            return given.error();
        own.options.order = given.value();
        return 0;
    });
}

int mercury_worker_set_hints(mercury_worker* worker, int on, const char* path) {
    return configure(worker, [&](mercury_worker& own) {
        if (on == 0)
            own.options.hints.reset();
        else
            own.options.hints = path == nullptr ? "" : path;
        return 0;
    });
}

int mercury_worker_set_marks(mercury_worker* worker, unsigned job) {
    return configure(worker, [&](mercury_worker& own) -> Result<int> {
        if (job >= jobs_max)
            return Error{fmt::format("marks are of job 0 to {}, not {}", jobs_max - 1, job)};
        own.marks_of_job = job;
        return 0;
    });
}

int mercury_worker_set_class_marks(mercury_worker* worker, const uint32_t* push,
                                   const uint32_t* pull, size_t classes) {
    return configure(worker, [&](mercury_worker& own) -> Result<int> {
        if (push == nullptr || pull == nullptr)
            return Error{"the marks are NULL"};
        if (classes == 0 || classes > classes_max) {
            return Error{
                fmt::format("there are marks for 1 to {} classes, not {}", classes_max, classes)};
        }
        const std::span pushes(push, classes);
        const std::span pulls(pull, classes);
        std::vector copy(pulls.begin(), pulls.end());
        own.options.push_marks.assign(pushes.begin(), pushes.end());
        own.options.pull_marks = std::move(copy);
        own.marks_of_job.reset();
        return 0;
    });
}

int mercury_worker_set_dscp(mercury_worker* worker, int on) {
    return configure(worker, [&](mercury_worker& own) {
        own.options.dscp = on != 0;
        return 0;
    });
}

int mercury_worker_set_in_flight(mercury_worker* worker, size_t bytes) {
    return configure(worker, [&](mercury_worker& own) {
        own.options.in_flight = bytes;
        return 0;
    });
}

int mercury_worker_set_join_time(mercury_worker* worker, unsigned milliseconds) {
    return configure(worker, [&](mercury_worker& own) {
        own.options.join_time = std::chrono::milliseconds{milliseconds};
        return 0;
    });
}

int mercury_worker_set_silence(mercury_worker* worker, unsigned milliseconds) {
    return configure(worker, [&](mercury_worker& own) {
        own.options.silence = std::chrono::milliseconds{milliseconds};
        return 0;
    });
}

int mercury_worker_join(mercury_worker* worker) {
    return configure(worker, join);
}

int mercury_worker_marking(const mercury_worker* worker, mercury_marking_status* status,
                           size_t size) {
    thread_local std::string why;
    return use(worker, [&](const Worker& joined) -> Result<int> {
        if (status == nullptr)
            return Error{"status is NULL"};
        MarkingStatus marking = joined.marking();
        why = std::move(marking.why);
        const mercury_marking_status now{static_cast<int>(marking.by), marking.job,
                                         marking.connections, marking.marked, why.c_str()};
        std::memset(status, 0, size);
        std::memcpy(status, &now, std::min(size, sizeof(now)));
        return 0;
    });
}

int mercury_worker_find_tensor(const mercury_worker* worker, const char* key, size_t* index) {
    return use(worker, [&](const Worker& joined) -> Result<int> {
        const auto name = text("the key", key);
        if (!name)
            return name.error();
        if (index == nullptr)
            return Error{"index is NULL"};
        const auto found = joined.index_of(name.value());
        if (!found)
            return Error{fmt::format("there is no tensor \"{}\"", name.value())};
        *index = *found;
        return 0;
    });
}

int mercury_worker_push_pull(mercury_worker* worker, size_t index, void* buffer, size_t bytes,
                             uint64_t* round) {
    return push_pull(worker, index, buffer, bytes, round, {});
}

int mercury_worker_push_pull_then(mercury_worker* worker, size_t index, void* buffer, size_t bytes,
                                  mercury_callback callback, void* context) {
    if (callback == nullptr)
        return failed("the callback is NULL");
    // Two pointers: a std::function holds them without memory of its own, and cannot throw.
    return push_pull(worker, index, buffer, bytes, nullptr,
                     [callback, context](const Result<void>& outcome) {
                         callback(context, outcome ? nullptr : outcome.error().message.c_str());
                     });
}

int mercury_worker_wait(mercury_worker* worker, size_t index, uint64_t round, int milliseconds) {
    return use(worker, [&](Worker& joined) -> Result<int> {
        const Worker::Ticket ticket{index, round};
        if (milliseconds < 0) {
            const auto done = joined.wait(ticket);
            return done ? Result<int>{0} : done.error();
        }
        const auto done = joined.wait_for(ticket, std::chrono::milliseconds{milliseconds});
        if (!done)
            return done.error();
        return done.value() ? 0 : MERCURY_IN_FLIGHT;
    });
}

void mercury_worker_free(mercury_worker* worker) {
    delete worker;
}

size_t mercury_in_flight(size_t switch_buffer, uint64_t bits_per_second, uint64_t rtt_ns) {
    constexpr auto most = static_cast<uint64_t>(std::chrono::nanoseconds::max().count());
    return in_flight_for(
        switch_buffer, bits_per_second,
        std::chrono::nanoseconds{static_cast<std::int64_t>(std::min(rtt_ns, most))});
}
