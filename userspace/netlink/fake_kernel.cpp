// SPDX-License-Identifier: MIT
#include "netlink/fake_kernel.hpp"

#include <algorithm>

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "netlink/deadlines.hpp"
#include "netlink/options.hpp"

namespace mercury::netlink {
namespace {

/// What a new qdisc has, with what OPTIONS say.
MercuryOptions with_defaults(const MercuryOptions& options) {
    MercuryOptions full = options;
    for_each_option(full, [](const Option& option, auto& field) {
        using Value = typename std::decay_t<decltype(field)>::value_type;
        if (!field)
            field = Value(option.unset);
    });
    return full;
}

/// FIELD of INTO is what FROM has, if that has any.
template <typename Options, typename ForEach>
void merge(Options& into, const Options& from, ForEach for_each) {
    for_each(into, [&](const Option& option, auto& field) {
        for_each(from, [&](const Option& other, const auto& value) {
            using Value = typename std::decay_t<decltype(field)>::value_type;
            if (other.attribute == option.attribute && value)
                field = Value(number_of(*value));
        });
    });
}

DeadlineTable deadlines_of(const MercuryOptions& options) {
    DeadlineTable table(options.jobs.value_or(0), options.bands.value_or(0));
    table.set(options.deadlines.value_or(std::vector<Deadline>{}));
    return table;
}

/// The deadlines of jobs and bands that stay are kept.
void update(MercuryOptions& options, const MercuryOptions& change) {
    merge(options, change, [](auto& all, auto visit) { for_each_option(all, visit); });
    DeadlineTable table = deadlines_of(options);
    table.set(change.deadlines.value_or(std::vector<Deadline>{}));
    options.deadlines = table.runs();
}

/// As the module names them, see MERCURY_MINOR_BAND.
struct Minor {
    std::optional<std::uint32_t> job;
    std::optional<std::uint32_t> band;
};

std::optional<Minor> minor_of(Handle classid, const MercuryOptions& options) {
    for (std::uint32_t job = 0; job < options.jobs.value_or(0); ++job) {
        if (classid.minor() == MERCURY_MINOR_JOB(job))
            return Minor{job, {}};
        const std::uint32_t first = MERCURY_MINOR_BAND(job, 0);
        if (classid.minor() >= first && classid.minor() < first + options.bands.value_or(0))
            return Minor{job, classid.minor() - first};
    }
    return {};
}

template <typename T, typename Same>
void replace(std::vector<T>& all, const T& one, Same same) {
    const auto found = std::find_if(all.begin(), all.end(), same);
    if (found == all.end())
        all.push_back(one);
    else
        *found = one;
}

}  // namespace

FakeKernel::FakeKernel() : ready_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)) {}

// Delivery --------------------------------------------------------------------------------------

void FakeKernel::later(std::function<void()> deliver) {
    on_its_way_.push_back(std::move(deliver));
    eventfd_write(ready_.get(), 1);
}

Result<void> FakeKernel::deliver() {
    if (on_its_way_.empty())
        return Error{"nothing is on its way from the kernel"};
    eventfd_t one = 0;
    eventfd_read(ready_.get(), &one);
    const auto next = std::move(on_its_way_.front());
    on_its_way_.pop_front();
    next();
    return {};
}

template <typename T>
void FakeKernel::answer(Done<T> done, Result<T> result) {
    later([done = std::move(done), result = std::move(result)] { done(result); });
}

void FakeKernel::emit(Event event) {
    if (handler_)
        later([this, event = std::move(event)] { handler_(event); });
}

Result<void> FakeKernel::subscribe(std::function<void(const Event&)> handler) {
    handler_ = std::move(handler);
    return {};
}

Result<void> FakeKernel::attach(Reactor& reactor) {
    return reactor.watch(ready_.get(), EPOLLIN,
                         [this](std::uint32_t /*events*/) { return deliver(); });
}

Result<void> FakeKernel::wait() {
    return deliver();
}

// Requests --------------------------------------------------------------------------------------

void FakeKernel::get_links(Done<std::vector<Link>> done) {
    answer<std::vector<Link>>(std::move(done), links_);
}

void FakeKernel::get_qdiscs(Done<std::vector<Qdisc>> done) {
    answer<std::vector<Qdisc>>(std::move(done), qdiscs_);
}

void FakeKernel::get_classes(int ifindex, Handle qdisc, Done<std::vector<Class>> done) {
    std::vector<Class> found;
    std::copy_if(classes_.begin(), classes_.end(), std::back_inserter(found),
                 [&](const Class& one) {
                     return one.ifindex == ifindex && one.classid.qdisc() == qdisc.qdisc();
                 });
    answer<std::vector<Class>>(std::move(done), found);
}

void FakeKernel::set(const QdiscRequest& request, Done<void> done) {
    requests_.emplace_back(request);
    const auto refusal = std::exchange(refusal_, {});
    answer<void>(std::move(done), refusal ? *refusal : carry_out(request));
}

void FakeKernel::set(const ClassRequest& request, Done<void> done) {
    requests_.emplace_back(request);
    const auto refusal = std::exchange(refusal_, {});
    answer<void>(std::move(done), refusal ? *refusal : carry_out(request));
}

Qdisc* FakeKernel::at(int ifindex, Handle parent) {
    const auto found = std::find_if(qdiscs_.begin(), qdiscs_.end(), [&](const Qdisc& one) {
        return one.ifindex == ifindex && one.parent == parent;
    });
    return found == qdiscs_.end() ? nullptr : &*found;
}

const Qdisc* FakeKernel::find(int ifindex, Handle handle) const {
    const auto found = std::find_if(qdiscs_.begin(), qdiscs_.end(), [&](const Qdisc& one) {
        return one.ifindex == ifindex && one.handle == handle;
    });
    return found == qdiscs_.end() ? nullptr : &*found;
}

// The kernel's own sentences, so that messages that are built on them can be tested.
Result<void> FakeKernel::carry_out(const QdiscRequest& request) {
    if (std::none_of(links_.begin(), links_.end(),
                     [&](const Link& link) { return link.index == request.ifindex; }))
        return Error{"No such device"};
    if (request.verb == Verb::Delete)
        return remove(request);
    Qdisc* const there = at(request.ifindex, request.parent);
    const bool is_ours = there != nullptr && there->handle.value != 0;  // 0: the kernel's default
    if (request.verb == Verb::Change && !is_ours)
        return Error{"Cannot find specified qdisc on specified device"};
    if (request.verb == Verb::Add && is_ours)
        return Error{"Exclusivity flag on, cannot modify"};
    const bool same = is_ours && there->kind == request.kind &&
                      (request.handle.value == 0 || request.handle == there->handle);
    if (request.verb == Verb::Change && !same)
        return Error{"Invalid qdisc name"};
    if (!same)
        return create(request);
    if (there->options)
        update(*there->options, request.options);
    emit(Changed<Qdisc>{*there, false});
    return {};
}

Result<void> FakeKernel::remove(const QdiscRequest& request) {
    const Qdisc* const there = at(request.ifindex, request.parent);
    if (there != nullptr && request.handle.value != 0 && request.handle != there->handle)
        return Error{"Invalid handle"};
    if (there == nullptr || there->handle.value == 0)
        return Error{"Cannot delete qdisc with handle of zero"};
    remove_qdisc(request.ifindex, there->handle);
    return {};
}

Result<void> FakeKernel::create(const QdiscRequest& request) {
    if (const Qdisc* const there = at(request.ifindex, request.parent))
        remove_qdisc(request.ifindex, there->handle);
    Qdisc qdisc;
    qdisc.ifindex = request.ifindex;
    qdisc.kind = request.kind;
    qdisc.parent = request.parent;
    qdisc.handle = request.handle.value != 0 ? request.handle : Handle{next_major_++ << 16};
    if (request.kind == MERCURY_KIND) {
        qdisc.options = with_defaults({});
        qdisc.mercury.emplace();
        update(*qdisc.options, request.options);
    }
    put(qdisc);
    return {};
}

Result<void> FakeKernel::carry_out(const ClassRequest& request) {
    const Qdisc* const qdisc = find(request.ifindex, request.classid.qdisc());
    const auto minor = qdisc != nullptr && qdisc->options
                           ? minor_of(request.classid, *qdisc->options)
                           : std::nullopt;
    if (!minor)
        return Error{"sch_mercury: no such class: jobs and bands say which there are"};
    const auto found = std::find_if(classes_.begin(), classes_.end(), [&](const Class& one) {
        return one.ifindex == request.ifindex && one.classid == request.classid;
    });
    Class one;
    if (found != classes_.end()) {
        one = *found;
    } else {
        one.ifindex = request.ifindex;
        one.kind = MERCURY_KIND;
        one.classid = request.classid;
        one.parent = root;
        one.options.emplace();
        one.options->job = minor->job;
        one.options->band = minor->band;
        one.mercury.emplace();
    }
    merge(*one.options, request.options,
          [](auto& all, auto visit) { for_each_class_option(all, visit); });
    if (request.options.deadline && minor->band) {
        const auto band = static_cast<std::uint16_t>(*minor->band);
        Qdisc changed = *qdisc;
        update(*changed.options, {.deadlines = {{{static_cast<std::uint16_t>(*minor->job), band,
                                                  band, *request.options.deadline}}}});
        replace(qdiscs_, changed, [&](const Qdisc& other) { return &other == qdisc; });
    }
    if (found != classes_.end() || request.options.limit || request.options.weight)
        put(one);
    else
        emit(Changed<Class>{one, false});  // a deadline alone does not make it worth listing
    return {};
}

std::optional<Time> FakeKernel::deadline(int ifindex, Handle qdisc, std::uint32_t job,
                                         std::uint32_t band) const {
    const Qdisc* const found = find(ifindex, qdisc);
    if (found == nullptr || !found->options || job >= found->options->jobs.value_or(0) ||
        band >= found->options->bands.value_or(0))
        return {};
    return deadlines_of(*found->options).at(job, band);
}

// What happens by itself ------------------------------------------------------------------------

void FakeKernel::put(const Link& link) {
    replace(links_, link, [&](const Link& other) { return other.index == link.index; });
    emit(Changed<Link>{link, false});
}

void FakeKernel::put(const Qdisc& qdisc) {
    replace(qdiscs_, qdisc, [&](const Qdisc& other) {
        return other.ifindex == qdisc.ifindex && other.parent == qdisc.parent;
    });
    emit(Changed<Qdisc>{qdisc, false});
}

void FakeKernel::put(const Class& one) {
    replace(classes_, one, [&](const Class& other) {
        return other.ifindex == one.ifindex && other.classid == one.classid;
    });
    emit(Changed<Class>{one, false});
}

void FakeKernel::remove_link(int ifindex) {
    while (true) {
        const auto found = std::find_if(qdiscs_.begin(), qdiscs_.end(),
                                        [&](const Qdisc& one) { return one.ifindex == ifindex; });
        if (found == qdiscs_.end())
            break;
        remove_qdisc(ifindex, Handle{found->handle});
    }
    const auto link = std::find_if(links_.begin(), links_.end(),
                                   [&](const Link& one) { return one.index == ifindex; });
    if (link == links_.end())
        return;
    emit(Changed<Link>{*link, true});
    links_.erase(link);
}

void FakeKernel::remove_qdisc(int ifindex, Handle handle) {
    const auto found = std::find_if(qdiscs_.begin(), qdiscs_.end(), [&](const Qdisc& one) {
        return one.ifindex == ifindex && one.handle == handle;
    });
    if (found == qdiscs_.end())
        return;
    emit(Changed<Qdisc>{*found, true});
    qdiscs_.erase(found);
    std::erase_if(classes_, [&](const Class& one) {
        return one.ifindex == ifindex && one.classid.qdisc() == handle;
    });
}

void FakeKernel::overrun() {
    emit(Overrun{});
}

}  // namespace mercury::netlink
