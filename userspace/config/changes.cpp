// SPDX-License-Identifier: MIT
#include "config/changes.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "netlink/deadlines.hpp"
#include "netlink/options.hpp"

namespace mercury {
namespace {

using netlink::Class;
using netlink::Deadline;
using netlink::DeadlineTable;
using netlink::Handle;
using netlink::Link;
using netlink::MercuryOptions;
using netlink::Option;
using netlink::Qdisc;

constexpr std::string_view mq_kind = "mq";

constexpr Handle usual_handle{0x10000};
constexpr std::uint32_t first_major = 0x10;  // if that is taken; people use lower ones

std::vector<std::string> texts_of(const std::vector<Deadline>& deadlines) {
    std::vector<std::string> texts;
    std::ranges::transform(deadlines, std::back_inserter(texts),
                           [](const Deadline& one) { return to_text(one); });
    return texts;
}

/// What of WANTED is not what PRESENT has; all that is not the default, if that is nothing.
void compare_options(const MercuryOptions* present, const MercuryOptions& wanted, Change& change) {
    MercuryOptions& asked = change.request.options;
    netlink::for_each_option(wanted, [&](const Option& option, const auto& value) {
        std::optional<std::uint64_t> before;
        if (present == nullptr) {
            before = option.unset;
        } else {
            netlink::for_each_option(*present, [&](const Option& other, const auto& had) {
                if (other.attribute == option.attribute && had)
                    before = netlink::number_of(*had);
            });
        }
        if (before == netlink::number_of(*value))
            return;
        netlink::for_each_option(asked, [&](const Option& other, auto& field) {
            using Value = typename std::decay_t<decltype(field)>::value_type;
            if (other.attribute == option.attribute)
                field = Value(netlink::number_of(*value));
        });
        std::string from;
        if (present != nullptr)
            from = before ? netlink::to_text(option, *before) : "unknown";
        change.options.push_back({std::string(option.name), std::move(from),
                                  netlink::to_text(option, netlink::number_of(*value))});
    });
}

/// A request leaves the bands that it does not name, so the first deadline is the default for all.
void compare_deadlines(const MercuryOptions* present, const MercuryOptions& wanted,
                       Change& change) {
    if (!wanted.deadlines)
        return;
    DeadlineTable before(*wanted.jobs, *wanted.bands);
    DeadlineTable after = before;
    if (present != nullptr && present->deadlines)
        before.set(*present->deadlines);
    after.set(*wanted.deadlines);
    if (before == after)
        return;
    const auto last = static_cast<std::uint16_t>(*wanted.bands - 1);
    std::vector<Deadline> asked{{{}, 0, last, netlink::Time{MERCURY_DEADLINE_DEFAULT}}};
    asked.insert(asked.end(), wanted.deadlines->begin(), wanted.deadlines->end());
    change.request.options.deadlines = std::move(asked);
    const auto listed = [](const DeadlineTable& table) {
        return fmt::format("[{}]", fmt::join(texts_of(table.runs()), ", "));
    };
    change.options.push_back(
        {"deadlines", present == nullptr ? "" : listed(before), listed(after)});
}

std::vector<std::string> texts_of(const std::vector<std::uint32_t>& weights) {
    std::vector<std::string> texts;
    for (std::size_t job = 0; job < weights.size(); ++job) {
        if (weights[job] != MERCURY_WEIGHT_DEFAULT)
            texts.push_back(fmt::format("{} {}", job, weights[job]));
    }
    return texts;
}

/// Jobs of which the kernel says nothing have the default weight.
std::uint32_t weight_of(const std::vector<Class>& classes, int ifindex, Handle classid) {
    const auto found = std::ranges::find_if(classes, [&](const Class& one) {
        return one.ifindex == ifindex && one.classid == classid;
    });
    return found == classes.end() || !found->options
               ? MERCURY_WEIGHT_DEFAULT
               : found->options->weight.value_or(MERCURY_WEIGHT_DEFAULT);
}

/// Of the qdisc HANDLE, which may be a new one.
void compare_weights(bool is_there, const std::vector<Class>& classes, Handle handle,
                     const std::vector<std::uint32_t>& wanted, Change& change) {
    std::vector<std::uint32_t> before(wanted.size(), std::uint32_t{MERCURY_WEIGHT_DEFAULT});
    for (std::uint32_t job = 0; job < wanted.size(); ++job) {
        const Handle classid = handle.child(MERCURY_MINOR_JOB(job));
        if (is_there)
            before[job] = weight_of(classes, change.request.ifindex, classid);
        if (before[job] != wanted[job])
            change.classes.push_back({change.request.ifindex, classid, {.weight = wanted[job]}});
    }
    const auto listed = [](const std::vector<std::uint32_t>& weights) {
        return fmt::format("[{}]", fmt::join(texts_of(weights), ", "));
    };
    if (!change.classes.empty())
        change.options.push_back({"weights", is_there ? listed(before) : "", listed(wanted)});
}

/// What one device has, and what it takes to make it as it is configured.
class Comparison {
  public:
    Comparison(const DeviceSettings& wanted, const Link& link, const std::vector<Qdisc>& qdiscs,
               const std::vector<Class>& classes, std::vector<Change>& changes)
        : wanted_(wanted), link_(link), classes_(classes), changes_(changes) {
        std::ranges::copy_if(qdiscs, std::back_inserter(qdiscs_),
                             [&](const Qdisc& one) { return one.ifindex == link.index; });
        for (const Qdisc& qdisc : qdiscs_)
            taken_.insert(qdisc.handle);
    }

    void compare() {
        // A device with one queue cannot have mq.
        if (!wanted_.mq || link_.tx_queues < 2)
            return compare_at(netlink::root, at(netlink::root));
        const Qdisc* const top = at(netlink::root);
        const bool has_mq = top != nullptr && top->kind == mq_kind && top->handle != Handle{};
        const Handle mq = has_mq ? top->handle : put_mq(top);
        for (std::uint32_t queue = 1; queue <= link_.tx_queues; ++queue)
            compare_at(mq.child(queue), has_mq ? at(mq.child(queue)) : nullptr);
    }

  private:
    const Qdisc* at(Handle parent) const {
        const auto found = std::ranges::find(qdiscs_, parent, &Qdisc::parent);
        return found == qdiscs_.end() ? nullptr : &*found;
    }

    Handle free_handle() {
        Handle handle = usual_handle;
        for (std::uint32_t major = first_major; !taken_.insert(handle).second; ++major)
            handle = Handle{major << 16};
        return handle;
    }

    Change place(Handle parent, const Qdisc* present, std::string_view kind) {
        Change change;
        change.device = wanted_.name;
        change.replaces = present == nullptr ? "noqueue" : present->kind;
        change.request.ifindex = link_.index;
        change.request.verb = netlink::Verb::Replace;
        change.request.parent = parent;
        change.request.handle = free_handle();
        change.request.kind = kind;
        return change;
    }

    /// The default one has no handle, and its queues no place that one could name.
    Handle put_mq(const Qdisc* present) {
        changes_.push_back(place(netlink::root, present, mq_kind));
        return changes_.back().request.handle;
    }

    void compare_at(Handle parent, const Qdisc* present) {
        const bool is_there = present != nullptr && present->options;
        Change change;
        if (is_there) {
            change.device = wanted_.name;
            change.request.ifindex = link_.index;
            change.request.verb = netlink::Verb::Change;
            change.request.parent = parent;
        } else {
            change = place(parent, present, MERCURY_KIND);
        }
        const MercuryOptions* const options = is_there ? &*present->options : nullptr;
        compare_options(options, wanted_.options, change);
        compare_deadlines(options, wanted_.options, change);
        if (wanted_.weights) {
            compare_weights(is_there, classes_, is_there ? present->handle : change.request.handle,
                            *wanted_.weights, change);
        }
        if (!is_there || !change.options.empty())
            changes_.push_back(std::move(change));
    }

    const DeviceSettings& wanted_;
    const Link& link_;
    std::vector<Qdisc> qdiscs_;
    const std::vector<Class>& classes_;
    std::set<Handle> taken_;
    std::vector<Change>& changes_;
};

}  // namespace

Changes changes_to(const std::vector<DeviceSettings>& devices, const std::vector<Link>& links,
                   const std::vector<Qdisc>& qdiscs, const std::vector<Class>& classes) {
    Changes all;
    for (const DeviceSettings& device : devices) {
        const auto link = std::ranges::find(links, device.name, &Link::name);
        if (link == links.end())
            all.missing.push_back(device.name);
        else
            Comparison(device, *link, qdiscs, classes, all.changes).compare();
    }
    return all;
}

Result<void> make(netlink::Kernel& kernel, const Change& change) {
    if (change.changes_qdisc()) {
        if (auto done = kernel.apply(change.request); !done)
            return done;
    }
    for (const netlink::ClassRequest& request : change.classes) {
        if (auto done = kernel.apply(request); !done)
            return done;
    }
    return {};
}

}  // namespace mercury
