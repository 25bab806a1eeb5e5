// SPDX-License-Identifier: MIT
//
// Runs the same training over the same network under each arm of the comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.hpp"
#include "common/units.hpp"
#include "layers/classes.hpp"
#include "layers/profile.hpp"
#include "replay/network.hpp"
#include "replay/server.hpp"
#include "replay/sockets.hpp"
#include "replay/worker.hpp"

namespace mercury::replay {

/// How layers travel, and what orders their packets.
struct Arm {
    std::string_view name;
    std::string_view description;
    bool one_class;  // all layers on one connection each way, or else one each way for each class
    Answer answer;
    std::string_view qdisc;  // as for tc
};

/// All there are. Each differs in one thing from the one before it; the first is what speed-ups
/// refer to.
std::span<const Arm> all_arms();

/// "fifo,pfifo,mercury"
Result<std::vector<const Arm*>> parse_arms(std::string_view names);

struct Settings {
    Rate rate{10'000'000'000};
    std::chrono::nanoseconds delay{std::chrono::microseconds(25)};  // each way
    std::size_t max_classes = classes_default;
    std::size_t warm_up = 1;           // iterations that are not measured
    std::size_t iterations = 3;        // that are
    std::size_t uploads = 0;           // unmarked bulk transfers beside the pushes
    std::optional<std::string> hints;  // where mercuryd listens, if it is to mark the connections
    std::vector<const Arm*> arms;
};

struct ArmResult {
    const Arm* arm = nullptr;
    std::size_t connections = 0;                       // both ways
    std::vector<std::chrono::nanoseconds> iterations;  // the measured ones
    std::chrono::nanoseconds median{0};
    double goodput = 0;             // bits a second of one bulk transfer, the lower of both ways
    std::uint64_t retransmits = 0;  // TCP segments, both ways
    std::uint64_t drops = 0;        // packets, in all queues
    double upload_goodput = 0;      // bits a second of all uploads, during the training

    // The measured iteration whose time is the median, or the one next below.
    IterationLog typical;
    std::vector<Arrival> pushed;  // during it, at the server
    std::vector<Arrival> pulled;  // during it, at the worker
};

struct Experiment {
    Settings settings;
    Profile profile;
    std::vector<PriorityClass> classes;
    std::vector<ArmResult> arms;
};

/// INTERRUPT_FD as in Worker::train(); PROGRESS is called before each arm.
Result<Experiment> run_experiment(Profile profile, const Settings& settings, int interrupt_fd,
                                  const std::function<void(const Arm&)>& progress);

struct TrainingLog {
    WorkerLog worker;
    std::vector<Arrival> pushed;
    std::uint64_t retransmits = 0;  // both ways
};

/// One worker and one server, joined by the connections whose ends they get.
Result<TrainingLog> train(const Profile& profile, const std::vector<std::size_t>& class_of_layer,
                          Ends worker_ends, Ends server_ends, Answer answer, std::size_t iterations,
                          int interrupt_fd);

}  // namespace mercury::replay
