// SPDX-License-Identifier: MIT
#include "daemon/network.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "netlink/deadlines.hpp"

namespace mercury::daemon {
namespace {

using namespace netlink;

// A bound on what jobs and administrators can make the kernel do: 20 rounds a second.
constexpr std::chrono::milliseconds gathering{50};

constexpr std::size_t bands_of_jobs = hints::classes_max;

bool is_mercury(const Qdisc& qdisc) {
    return qdisc.kind == MERCURY_KIND && qdisc.options;
}

/// Runs of the same time, as the kernel wants them.
std::vector<Deadline> runs_of(unsigned job, const std::vector<Time>& times) {
    std::vector<Deadline> runs;
    for (std::size_t band = 0; band < times.size(); ++band) {
        const auto number = static_cast<std::uint16_t>(band);
        if (!runs.empty() && runs.back().time == times[band])
            runs.back().last = number;
        else
            runs.push_back({static_cast<std::uint16_t>(job), number, number, times[band]});
    }
    return runs;
}

/// Why the marks of jobs mean nothing there; "" if they do.
std::string deaf_to_marks(const MercuryOptions& options) {
    if (options.key.value_or(MERCURY_KEY_MARK) != MERCURY_KEY_MARK)
        return "its key is not the mark, so it does not see jobs";
    if (options.mask.value_or(MERCURY_MASK_DEFAULT) != MERCURY_MASK_DEFAULT ||
        options.job_mask.value_or(MERCURY_JOB_MASK_DEFAULT) != MERCURY_JOB_MASK_DEFAULT)
        return "its masks are not the default ones, so it reads other jobs than are marked";
    return "";
}

}  // namespace

Network::Network(Kernel& kernel, std::vector<DeviceSettings> devices)
    : kernel_(kernel), devices_(std::move(devices)) {}

Result<void> Network::start(Reactor& reactor) {
    if (auto attached = timer_.attach(reactor, [this] { return refresh(); }); !attached)
        return attached;
    if (auto attached = kernel_.attach(reactor); !attached)
        return attached;
    if (auto subscribed = kernel_.subscribe([this](const Event& event) { on_event(event); });
        !subscribed)
        return subscribed;
    soon();
    return {};
}

void Network::configure(std::vector<DeviceSettings> devices) {
    devices_ = std::move(devices);
    problems_.clear();
    for (auto& [key, instance] : instances_)
        instance.configured = instance.weighted = false;
    stale_ = true;
    soon();
}

void Network::set_deadlines(unsigned number, const Deadlines& deadlines) {
    deadlines_[number] = deadlines;
    soon();
}

void Network::on_event(const Event& event) {
    if (std::holds_alternative<Changed<Class>>(event))
        return;
    if (const auto* const changed = std::get_if<Changed<Qdisc>>(&event); changed != nullptr) {
        // A new one may get the same handle.
        if (changed->gone)
            instances_.erase({changed->now.ifindex, changed->now.handle});
    } else if (std::holds_alternative<Overrun>(event)) {
        ++counters_.overruns;
        spdlog::info("the kernel has lost events: everything is read again");
        instances_.clear();
    }
    stale_ = true;
    soon();
}

/// When all that is underway has been answered, so that no two rounds overlap.
void Network::soon() {
    if (armed_ || underway_ > 0)
        return;
    armed_ = static_cast<bool>(timer_.arm(Clock::now() + gathering));
}

template <typename Request>
void Network::ask(const Request& request, Kernel::Done<void> done) {
    ++underway_;
    ++counters_.requests;
    kernel_.set(request, [this, done = std::move(done)](Result<void> outcome) {
        if (!outcome)
            ++counters_.failures;
        done(std::move(outcome));
        request_done();
    });
}

void Network::request_done() {
    --underway_;
    const bool untold = std::ranges::any_of(deadlines_, [this](const auto& job) {
        return std::ranges::any_of(instances_, [&](const auto& entry) {
            const Instance& instance = entry.second;
            const auto told = instance.told.find(job.first);
            return job.first < instance.jobs && instance.problem.empty() &&
                   (told == instance.told.end() || told->second != wanted(instance, job.second));
        });
    });
    if (stale_ || untold)
        soon();
}

Result<void> Network::refresh() {
    armed_ = false;
    if (std::exchange(stale_, false))
        read_links();
    else
        apply_deadlines();
    return {};
}

// What there is --------------------------------------------------------------------------------

void Network::read_links() {
    ++underway_;
    kernel_.get_links([this](Result<std::vector<Link>> links) {
        if (links) {
            links_ = std::move(links).value();
            read_qdiscs();
        } else {
            spdlog::error("the devices cannot be read: {}", links.error().message);
        }
        request_done();
    });
}

void Network::read_qdiscs() {
    ++underway_;
    kernel_.get_qdiscs([this](Result<std::vector<Qdisc>> qdiscs) {
        if (qdiscs) {
            adopt(qdiscs.value());
            apply_devices(qdiscs.value());
            apply_weights();
            apply_deadlines();
        } else {
            spdlog::error("the qdiscs cannot be read: {}", qdiscs.error().message);
        }
        request_done();
    });
}

void Network::adopt(const std::vector<Qdisc>& qdiscs) {
    std::map<Key, Instance> found;
    for (const Qdisc& qdisc : qdiscs) {
        if (!is_mercury(qdisc))
            continue;
        const Key key{qdisc.ifindex, qdisc.handle};
        const auto known = instances_.find(key);
        Instance& instance = found[key];
        if (known != instances_.end())
            instance = known->second;
        instance.parent = qdisc.parent;
        instance.jobs = qdisc.options->jobs.value_or(MERCURY_JOBS_DEFAULT);
        const std::uint32_t bands = qdisc.options->bands.value_or(MERCURY_BANDS_DEFAULT);
        DeadlineTable table(instance.jobs, bands);
        if (qdisc.options->deadlines)
            table.set(*qdisc.options->deadlines);
        instance.unset.clear();
        for (std::uint32_t band = 0; band < std::min<std::size_t>(bands, bands_of_jobs); ++band)
            instance.unset.push_back(table.at(0, band));
        report(instance.problem, name_of(key.ifindex), deaf_to_marks(*qdisc.options));
    }
    instances_ = std::move(found);
}

std::string Network::name_of(int ifindex) const {
    const auto found = std::ranges::find(links_, ifindex, &Link::index);
    return found == links_.end() ? fmt::format("device {}", ifindex) : found->name;
}

/// Says so once.
void Network::report(std::string& problem, const std::string& device, std::string now) {
    if (!now.empty() && now != problem)
        spdlog::warn("{}: {}", device, now);
    problem = std::move(now);
}

// What there should be -------------------------------------------------------------------------

/// Whether the configuration put it there.
bool Network::is_owned(const DeviceSettings& device, const Key& key,
                       const Instance& instance) const {
    return device.name == name_of(key.ifindex) && (device.mq || instance.parent == root);
}

/// Those of devices_, without the deadlines that would be taken from jobs again, and without
/// weights: to compare them would take all classes.
std::vector<DeviceSettings> Network::devices_to_compare() {
    std::vector<DeviceSettings> devices = devices_;
    for (DeviceSettings& device : devices) {
        device.weights.reset();
        if (!device.options.deadlines)
            continue;
        std::vector<Instance*> owned;
        for (auto& [key, instance] : instances_) {
            if (is_owned(device, key, instance))
                owned.push_back(&instance);
        }
        const bool all_configured = std::ranges::all_of(owned, &Instance::configured);
        if (all_configured && !owned.empty())
            device.options.deadlines.reset();
        for (Instance* const instance : owned) {
            if (!std::exchange(instance->configured, true) || !all_configured)
                instance->told.clear();
        }
    }
    return devices;
}

void Network::apply_devices(const std::vector<Qdisc>& qdiscs) {
    const Changes changes = changes_to(devices_to_compare(), links_, qdiscs);
    for (const DeviceSettings& device : devices_) {
        const bool missing =
            std::ranges::find(changes.missing, device.name) != changes.missing.end();
        report(problems_[device.name], device.name, missing ? "there is no such device" : "");
    }
    for (const Change& change : changes.changes) {
        ask(change.request, [this, change](Result<void> done) {
            if (done) {
                spdlog::info(
                    "{}: {} is {}", change.device, change.request.kind,
                    change.replaces.empty() ? "changed" : "in place of " + change.replaces);
            } else {
                report(problems_[change.device], change.device, done.error().message);
            }
        });
    }
}

/// After the qdiscs: a job may be one that they have only now.
void Network::apply_weights() {
    for (const DeviceSettings& device : devices_) {
        for (auto& [key, instance] : instances_) {
            if (!device.weights || !is_owned(device, key, instance) ||
                std::exchange(instance.weighted, true))
                continue;
            for (std::uint32_t job = 0; job < device.weights->size(); ++job)
                set_weight(key, job, (*device.weights)[job]);
        }
    }
}

void Network::set_weight(const Key& key, std::uint32_t job, std::uint32_t weight) {
    const ClassRequest request{
        key.ifindex, key.handle.child(MERCURY_MINOR_JOB(job)), {.weight = weight}};
    ask(request, [this, key, job](Result<void> done) {
        if (!done) {
            spdlog::warn("{}: the weight of job {} is not set: {}", name_of(key.ifindex), job,
                         done.error().message);
        }
    });
}

Network::Times Network::wanted(const Instance& instance, const Deadlines& deadlines) const {
    Times times = instance.unset;
    for (std::size_t band = 0; band < std::min(times.size(), deadlines.size()); ++band) {
        if (deadlines[band])
            times[band] =
                std::min(times[band], Time(static_cast<std::uint64_t>(deadlines[band]->count())));
    }
    return times;
}

void Network::apply_deadlines() {
    for (auto& [key, instance] : instances_) {
        for (const auto& [number, deadlines] : deadlines_) {
            if (number >= instance.jobs || !instance.problem.empty())
                continue;
            const Times times = wanted(instance, deadlines);
            const auto told = instance.told.find(number);
            if (told == instance.told.end() || told->second != times)
                tell(key, number, times);
        }
    }
    std::erase_if(deadlines_, [](const auto& job) { return job.second.empty(); });
}

void Network::tell(const Key& key, unsigned number, const Times& times) {
    Instance& instance = instances_.at(key);
    instance.told[number] = times;
    QdiscRequest request;
    request.verb = Verb::Change;
    request.ifindex = key.ifindex;
    request.parent = instance.parent;
    request.handle = key.handle;
    request.options.deadlines = runs_of(number, times);
    ask(request, [this, key, number](Result<void> done) {
        if (const auto found = instances_.find(key); !done && found != instances_.end()) {
            spdlog::warn("{}: the deadlines of job {} are not set: {}", name_of(key.ifindex),
                         number, done.error().message);
        }
    });
}

std::vector<hints::Status::Device> Network::status() const {
    std::map<std::string, hints::Status::Device> devices;
    const auto device = [&devices](const std::string& name) -> hints::Status::Device& {
        auto& one = devices[name];
        one.name = name;
        return one;
    };
    for (const auto& [key, instance] : instances_) {
        hints::Status::Device& one = device(name_of(key.ifindex));
        ++one.qdiscs;
        one.problem = instance.problem;
    }
    for (const DeviceSettings& configured : devices_) {
        hints::Status::Device& one = device(configured.name);
        one.managed = true;
        if (const auto found = problems_.find(configured.name);
            found != problems_.end() && !found->second.empty())
            one.problem = found->second;
    }
    std::vector<hints::Status::Device> list;
    for (auto& [name, one] : devices)
        list.push_back(std::move(one));
    return list;
}

}  // namespace mercury::daemon
