// SPDX-License-Identifier: MIT
//
// mercury.h for C++: the client frees itself. Outcomes are those of enum mercury_outcome.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mercury.h"

namespace mercury {

class HintClient {
  public:
    /// At the usual place; see mercury_client_new().
    HintClient() : client_(mercury_client_new(nullptr)) {}
    explicit HintClient(const std::string& path) : client_(mercury_client_new(path.c_str())) {}

    int set_timeout(std::chrono::milliseconds timeout) {
        return mercury_client_set_timeout(get(), static_cast<unsigned>(timeout.count()));
    }
    int job(const std::string& name, const std::vector<mercury_layer>& layers,
            std::size_t classes) {
        return mercury_client_job(get(), name.c_str(), layers.data(), layers.size(), classes);
    }
    std::size_t classes() const { return mercury_client_classes(get()); }
    std::optional<std::size_t> class_of(std::size_t layer) const {
        const int index = mercury_client_class_of(get(), layer);
        return index < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(index));
    }
    int assign(int fd, std::size_t layer, std::uint32_t lowat = 0) {
        return mercury_client_assign(get(), fd, layer, lowat);
    }
    int step() { return mercury_client_step(get()); }
    int dispatch(std::chrono::milliseconds patience = std::chrono::milliseconds(0)) {
        return mercury_client_dispatch(get(), static_cast<unsigned>(patience.count()));
    }
    int fd() const { return mercury_client_fd(get()); }
    short events() const { return mercury_client_events(get()); }
    mercury_status status() const {
        mercury_status now{};
        mercury_client_status(get(), &now, sizeof(now));
        return now;
    }
    const char* error() const { return mercury_client_error(get()); }

    /// For the C interface; nullptr if there was no memory, and every call then says so.
    mercury_client* get() const { return client_.get(); }

  private:
    struct Free {
        void operator()(mercury_client* client) const { mercury_client_free(client); }
    };
    std::unique_ptr<mercury_client, Free> client_;
};

}  // namespace mercury
