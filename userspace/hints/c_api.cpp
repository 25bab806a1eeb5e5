// SPDX-License-Identifier: MIT
//
// mercury.h on top of client.hpp. Nothing is thrown across it.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include <poll.h>

#include <fmt/format.h>

#include "hints/client.hpp"
#include "hints/mercury.h"

using namespace mercury;
using namespace mercury::hints;

struct mercury_client {  // NOLINT(readability-identifier-naming): C's
    explicit mercury_client(std::string path) : client(std::move(path)) {}

    Client client;
    const char* last_resort = nullptr;  // an error that there was no memory to keep
};

static_assert(static_cast<int>(Outcome::Done) == MERCURY_DONE &&
              static_cast<int>(Outcome::Fallback) == MERCURY_FALLBACK &&
              static_cast<int>(Outcome::Pending) == MERCURY_PENDING &&
              static_cast<int>(Outcome::Argument) == MERCURY_ERROR_ARGUMENT &&
              static_cast<int>(Outcome::Memory) == MERCURY_ERROR_MEMORY &&
              static_cast<int>(Outcome::Order) == MERCURY_ERROR_ORDER &&
              static_cast<int>(Outcome::Socket) == MERCURY_ERROR_SOCKET &&
              static_cast<int>(Outcome::Busy) == MERCURY_ERROR_BUSY &&
              static_cast<int>(Outcome::Refused) == MERCURY_ERROR_REFUSED &&
              static_cast<int>(Outcome::Forked) == MERCURY_ERROR_FORKED);

namespace {

/// WORK(client), which returns an Outcome.
template <typename Work>
int guarded(mercury_client* client, const Work& work) noexcept {
    if (client == nullptr)
        return MERCURY_ERROR_ARGUMENT;
    try {
        client->last_resort = nullptr;
        if (client->client.forked()) {
            return static_cast<int>(client->client.fail(
                Outcome::Forked, "this process has forked from the one that made the client"));
        }
        return static_cast<int>(work(client->client));
    } catch (const std::exception& /*problem*/) {  // nothing else is thrown below
        client->last_resort = "there is no memory left";
        return MERCURY_ERROR_MEMORY;
    } catch (...) {
        client->last_resort = "an unknown exception";
        return MERCURY_ERROR_MEMORY;
    }
}

std::chrono::nanoseconds time_of(std::uint64_t ns) {
    // What is too long is refused later, so it need only stay too long.
    const auto too_long =
        static_cast<std::uint64_t>(std::chrono::nanoseconds(layer_time_max).count()) + 1;
    return std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(ns, too_long)));
}

Outcome declare(Client& client, const char* name, const mercury_layer* layers, std::size_t count,
                std::size_t classes) {
    if (name == nullptr || layers == nullptr)
        return client.fail(Outcome::Argument, "the name of the job or its layers are NULL");
    if (count > layers_max) {
        return client.fail(Outcome::Argument,
                           fmt::format("a job has 1 to {} layers, not {}", layers_max, count));
    }
    DeclareJob job{name, {}, classes, {}};
    for (std::size_t i = 0; i < count; ++i) {
        const mercury_layer& layer = layers[i];
        if (layer.name == nullptr)
            return client.fail(Outcome::Argument, fmt::format("the name of layer {} is NULL", i));
        job.layers.push_back(
            {layer.name, time_of(layer.forward_ns), time_of(layer.backward_ns), layer.bytes});
    }
    return client.declare(std::move(job));
}

}  // namespace

const char* mercury_version() {
    return MERCURY_VERSION;
}

mercury_client* mercury_client_new(const char* path) {
    try {
        return std::make_unique<mercury_client>(path == nullptr ? socket_path() : path).release();
    } catch (...) {
        return nullptr;
    }
}

void mercury_client_free(mercury_client* client) {
    const std::unique_ptr<mercury_client> freed(client);
}

int mercury_client_set_timeout(mercury_client* client, unsigned int milliseconds) {
    return guarded(client, [&](Client& one) {
        one.set_timeout(std::chrono::milliseconds(milliseconds));
        return Outcome::Done;
    });
}

int mercury_client_job(mercury_client* client, const char* name, const mercury_layer* layers,
                       size_t count, size_t classes) {
    return guarded(client, [&](Client& one) { return declare(one, name, layers, count, classes); });
}

size_t mercury_client_classes(const mercury_client* client) {
    return client == nullptr ? 0 : client->client.classes();
}

int mercury_client_class_of(const mercury_client* client, size_t layer) {
    if (client == nullptr)
        return MERCURY_ERROR_ARGUMENT;
    const auto index = client->client.class_of(layer);
    return index ? static_cast<int>(*index) : MERCURY_ERROR_ARGUMENT;
}

int mercury_client_assign(mercury_client* client, int fd, size_t layer, uint32_t lowat) {
    return guarded(client, [&](Client& one) { return one.assign(fd, layer, lowat); });
}

int mercury_client_step(mercury_client* client) {
    return guarded(client, [](Client& one) { return one.step(); });
}

int mercury_client_fd(const mercury_client* client) {
    return client == nullptr ? -1 : client->client.fd();
}

short mercury_client_events(const mercury_client* client) {
    if (client == nullptr || client->client.fd() < 0)
        return 0;
    return client->client.wants_to_send() ? POLLIN | POLLOUT : POLLIN;
}

int mercury_client_dispatch(mercury_client* client, unsigned int milliseconds) {
    return guarded(
        client, [&](Client& one) { return one.dispatch(std::chrono::milliseconds(milliseconds)); });
}

int mercury_client_status(const mercury_client* client, mercury_status* status, size_t size) {
    if (client == nullptr || status == nullptr)
        return MERCURY_ERROR_ARGUMENT;
    const Client& one = client->client;
    const mercury_status now{
        one.connected() ? MERCURY_STATE_CONNECTED : MERCURY_STATE_FALLBACK,
        one.job_number(),
        one.classes(),
        one.sockets(),
        one.marked(),
        one.why().c_str(),
    };
    std::memset(status, 0, size);
    std::memcpy(status, &now, std::min(size, sizeof(now)));
    return MERCURY_DONE;
}

const char* mercury_client_error(const mercury_client* client) {
    if (client == nullptr)
        return "the client is NULL";
    return client->last_resort != nullptr ? client->last_resort : client->client.error().c_str();
}
