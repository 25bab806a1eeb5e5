// SPDX-License-Identifier: MIT
//
// worker.c in C++.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <mercury/transport/in_flight.hpp>
#include <mercury/transport/worker.hpp>
#include <span>
#include <string>
#include <vector>

using namespace mercury::transport;

namespace {

int fail(const mercury::Error& error) {
    std::cerr << error.message << '\n';
    return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4)
        return 2;
    WorkerOptions options;
    options.job = "installed";
    options.servers = {argv[1]};
    options.rank = static_cast<unsigned>(std::stoul(argv[2]));
    options.workers = static_cast<unsigned>(std::stoul(argv[3]));
    options.in_flight =
        in_flight_for(std::size_t{2} << 20, 10'000'000'000, std::chrono::microseconds{50});
    auto worker = Worker::join(options, {{.key = "tensor", .elements = 1000}});
    if (!worker)
        return fail(worker.error());

    std::vector<float> buffer(1000, static_cast<float>(options.rank + 1));
    const auto ticket = worker.value()->push_pull(0, std::as_writable_bytes(std::span(buffer)));
    if (!ticket)
        return fail(ticket.error());
    if (const auto done = worker.value()->wait(ticket.value()); !done)
        return fail(done.error());
    const auto sum = static_cast<float>(options.workers * (options.workers + 1) / 2);
    if (std::any_of(buffer.begin(), buffer.end(), [sum](float value) { return value != sum; }))
        return fail({"the sum is wrong"});
    std::cout << "the sum is right\n";
    return EXIT_SUCCESS;
}
