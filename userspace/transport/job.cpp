// SPDX-License-Identifier: MIT
#include "transport/job.hpp"

#include <algorithm>
#include <utility>

#include <mercury.h>

#include <fmt/format.h>

#include "transport/in_flight.hpp"

namespace mercury::transport {
namespace {

constexpr const char* left_too_early = "left before what it pushed had come back";

/// The bits of a mark that sch_mercury reads: a worker cannot choose others, which may mean
/// something to this host's routing.
constexpr std::uint32_t mark_bits = MERCURY_MASK_DEFAULT | MERCURY_JOB_MASK_DEFAULT;

double seconds(std::chrono::milliseconds time) {
    return std::chrono::duration<double>(time).count();
}

/// What becomes of a job's connections.
std::string describe_marking(const MarkingStatus& marking) {
    if (marking.by == MarkedBy::nobody)
        return fmt::format("is not marked: {}", marking.why);
    if (marking.by == MarkedBy::priority)
        return fmt::format("has SO_PRIORITY only: {}", marking.why);
    if (!marking.why.empty())
        return fmt::format("is not marked in full by mercuryd: {}", marking.why);
    return fmt::format("is marked by mercuryd, as its job {}", marking.job);
}

}  // namespace

std::uint64_t memory_of(const Join& join) {
    std::uint64_t sum = 0;
    for (const TensorRange& range : join.tensors) {
        const std::uint64_t bytes = Accumulator::memory(range.type, range.elements, join.workers);
        if (__builtin_add_overflow(sum, bytes, &sum))
            return UINT64_MAX;
    }
    return sum;
}

Job::Job(std::string name, const Join& first, const ServerOptions& options, Reactor& reactor,
         Ended ended)
    : name_(std::move(name)),
      first_(first),
      options_(options),
      reactor_(reactor),
      ended_(std::move(ended)),
      classes_(first.pull_marks.size()),
      memory_(memory_of(first)),
      progress_(first.tensors.size(), created_),
      paused_(first.tensors.size()),
      members_(first.workers) {
    sums_.reserve(first.tensors.size());
    for (const TensorRange& range : first.tensors)
        sums_.emplace_back(range.type, range.reduction, first.order, range.elements, first.workers);
    if (options_.marks && first.hints)
        give_hints();
}

/// Nothing in a server waits for the daemon.
void Job::give_hints() {
    std::vector<std::uint64_t> bytes(classes_);
    for (const TensorRange& range : first_.tensors)
        bytes[range.priority_class] += range.elements * size_of(range.type);
    hints_.emplace(options_.hints, name_, bytes, std::chrono::milliseconds{0},
                   [this](const MarkingStatus& now) {
                       options_.log(fmt::format("job \"{}\" {}", name_, describe_marking(now)));
                   });
}

std::string Job::describe(std::size_t rank) const {
    return fmt::format("worker {} ({}) of job \"{}\"", rank, members_[rank].peer, name_);
}

Result<void> Job::agrees(const Join& join) const {
    const auto differs = [&](const char* what, const auto& own, const auto& others) {
        return Error{
            fmt::format("worker {} of job \"{}\" has {} {}, but the first one to join had "
                        "{}",
                        join.rank, name_, what, own, others)};
    };
    if (join.workers != first_.workers)
        return differs("workers =", join.workers, first_.workers);
    if (join.servers != first_.servers)
        return differs("servers =", join.servers, first_.servers);
    if (join.server != first_.server)
        return differs("this server as number", join.server, first_.server);
    if (join.order != first_.order)
        return differs("order =", to_string(join.order), to_string(first_.order));
    if (join.hints != first_.hints)
        return differs("hints =", join.hints, first_.hints);
    if (join.pull_marks.size() != classes_)
        return differs("classes =", join.pull_marks.size(), classes_);
    if (join.tensors.size() != first_.tensors.size())
        return differs("tensors =", join.tensors.size(), first_.tensors.size());
    for (std::size_t i = 0; i < join.tensors.size(); ++i) {
        const TensorRange& own = join.tensors[i];
        const TensorRange& others = first_.tensors[i];
        if (own == others)
            continue;
        const auto text = [](const TensorRange& range) {
            return fmt::format("\"{}\" ({} of {} elements of {} from {}, {}, class {})", range.key,
                               range.elements, range.total, to_string(range.type), range.offset,
                               to_string(range.reduction), range.priority_class);
        };
        return differs("the tensor", text(own), text(others));
    }
    return {};
}

Result<void> Job::join(const Join& join, std::unique_ptr<ControlChannel>& control, std::string peer,
                       const Session& session) {
    if (auto same = agrees(join); !same)
        return same;
    Member& member = members_[join.rank];
    if (member.control) {
        return Error{fmt::format("{} {} already", describe(join.rank),
                                 member.left ? "has left" : "is there")};
    }

    const std::size_t rank = join.rank;
    member.peer = std::move(peer);
    member.session = session;
    member.push.resize(classes_);
    member.pull.resize(classes_);
    member.control = std::move(control);
    member.control->set_receiver(
        [this, rank](const Control& message) { return received(rank, message); },
        [this, rank](const Error& why) {
            if (!members_[rank].left)
                fail(rank, why.message);
        });
    ++joined_;
    options_.log(fmt::format("{} has joined, {} of {}", describe(rank), joined_, members_.size()));
    return {};
}

void Job::welcome(std::size_t rank) {
    members_[rank].control->send(Welcome{members_[rank].session});
}

bool Job::owns(const Session& session) const {
    return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
        return member.control && member.session == session;
    });
}

SocketOptions Job::socket_options(ConnectionKind kind, std::size_t priority_class) {
    SocketOptions options;
    if (kind == ConnectionKind::push) {
        options.receive_window = window_for(options_.in_flight, members_.size());
    } else if (hints_) {
        options.hints = &*hints_;
        options.layer = layer_of_pulls(priority_class);
    } else if (options_.marks) {
        options.mark = first_.pull_marks[priority_class] & mark_bits;
    }
    if (first_.dscp)
        options.dscp = dscp_of_class(priority_class);
    return options;
}

Result<void> Job::attach(ConnectionKind kind, const Attachment& attachment, Fd socket) {
    const auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
        return member.control && member.session == attachment.session;
    });
    const auto rank = static_cast<std::size_t>(found - members_.begin());
    const std::size_t priority_class = attachment.priority_class;
    if (priority_class >= classes_) {
        return Error{
            fmt::format("{} attaches class {} of {}", describe(rank), priority_class, classes_)};
    }
    const auto options = socket_options(kind, priority_class);
    if (auto set = set_options(socket, options); !set)
        return set;
    if (auto bounded = bound_window(socket, options.receive_window); !bounded)
        return bounded;
    const auto start = [&](auto& place) -> Result<void> {
        if (place)
            return Error{fmt::format("{} attaches class {} twice", describe(rank), priority_class)};
        using Stream = typename std::remove_reference_t<decltype(place)>::element_type;
        place = std::make_unique<Stream>(std::move(socket), reactor_, *this, rank, priority_class);
        return place->start();
    };
    if (kind == ConnectionKind::push)
        return start(found->push[priority_class]);
    if (auto started = start(found->pull[priority_class]); !started)
        return started;
    // On a slow way it may come later than the pushes.
    for (std::size_t tensor = 0; tensor < sums_.size() && !has_ended_; ++tensor) {
        if (range(tensor).priority_class == priority_class && is_due(tensor, rank))
            offer(tensor, rank);
    }
    return {};
}

Result<void> Job::received(std::size_t rank, const Control& message) {
    if (std::holds_alternative<Leave>(message)) {
        leave(rank);
        return {};
    }
    if (const auto* const failure = std::get_if<Failure>(&message); failure != nullptr) {
        fail(rank, "gave up: " + failure->message);
        return {};
    }
    return Error{"sent a control message that has no place here"};
}

bool Job::is_done_with_everything(std::size_t rank) const {
    return std::all_of(sums_.begin(), sums_.end(), [&](const Accumulator& sum) {
        return sum.pushed(rank) == sum.pulled(rank) && sum.pushed(rank) % sum.bytes() == 0;
    });
}

void Job::leave(std::size_t rank) {
    Member& member = members_[rank];
    if (!is_done_with_everything(rank)) {
        fail(rank, left_too_early);
        return;
    }
    member.left = true;
    member.control->finish();  // it waits for that, or its last words might be lost on the way
    options_.log(fmt::format("{} has left", describe(rank)));
    // Who has begun a round that this one will never push may not go on.
    for (std::size_t tensor = 0; tensor < sums_.size() && !has_ended_; ++tensor) {
        for (std::size_t other = 0; other < members_.size(); ++other) {
            if (sums_[tensor].pushed(other) > sums_[tensor].pushed(rank)) {
                fail(other, pushes_in_vain(other, tensor));
                return;
            }
        }
        resume_paused(tensor);
    }
    const bool all_left =
        std::all_of(members_.begin(), members_.end(), [](const Member& any) { return any.left; });
    if (all_left && !std::exchange(has_ended_, true))
        ended_(std::nullopt);
}

bool Job::is_left() const {
    return std::any_of(members_.begin(), members_.end(),
                       [](const Member& member) { return member.left; });
}

std::string Job::pushes_in_vain(std::size_t rank, std::size_t tensor) const {
    if (members_[rank].left)
        return left_too_early;  // before its push had arrived
    const auto gone = std::find_if(members_.begin(), members_.end(),
                                   [](const Member& member) { return member.left; });
    return fmt::format("pushes \"{}\" again, but {} has left", range(tensor).key,
                       describe(static_cast<std::size_t>(gone - members_.begin())));
}

void Job::fail(std::size_t rank, const std::string& what) {
    fail(fmt::format("{} {}", describe(rank), what));
}

void Job::fail(const std::string& why) {
    if (std::exchange(has_ended_, true))
        return;
    for (Member& member : members_) {
        for (const auto& stream : member.push) {
            if (stream)
                stream->stop();
        }
        for (const auto& stream : member.pull) {
            if (stream)
                stream->stop();
        }
        if (member.control && !member.left)
            member.control->send(Failure{why});
    }
    ended_(Error{why});
}

std::vector<std::pair<std::unique_ptr<ControlChannel>, std::string>> Job::take_channels() {
    std::vector<std::pair<std::unique_ptr<ControlChannel>, std::string>> channels;
    for (Member& member : members_) {
        if (member.control)
            channels.emplace_back(std::move(member.control), member.peer);
    }
    return channels;
}

/// Whether RANK may have some of TENSOR now.
bool Job::is_due(std::size_t tensor, std::size_t rank) const {
    const Accumulator& sum = sums_[tensor];
    const std::size_t ready = sum.ready(rank).size();
    return ready != 0 &&
           (!options_.whole_ranges || sum.pulled(rank) % sum.bytes() + ready == sum.bytes());
}

void Job::offer(std::size_t tensor, std::size_t rank) {
    PullStream* const stream = members_[rank].pull[range(tensor).priority_class].get();
    if (stream != nullptr)
        stream->offer(sums_[tensor].pulled(rank) / sums_[tensor].bytes() + 1, tensor);
}

void Job::pushed(std::size_t tensor) {
    progress_[tensor] = Clock::now();
    for (std::size_t rank = 0; rank < members_.size() && !has_ended_; ++rank) {
        if (is_due(tensor, rank))
            offer(tensor, rank);
    }
    resume_paused(tensor);
}

void Job::begin(std::uint64_t round) {
    if (hints_)
        hints_->begin(round);
}

void Job::pulled(std::size_t tensor) {
    progress_[tensor] = Clock::now();
    resume_paused(tensor);
}

void Job::pause(std::size_t tensor, PushStream& stream) {
    if (paused_[tensor].empty())
        progress_[tensor] = Clock::now();
    paused_[tensor].push_back(&stream);
}

void Job::resume_paused(std::size_t tensor) {
    if (has_ended_)
        return;
    for (PushStream* const stream : std::exchange(paused_[tensor], {}))
        stream->resume();  // one that still finds no room pauses again
}

void Job::put_in_order(std::size_t rank) {
    bool held = false;
    for (const auto& stream : members_[rank].push) {
        if (has_ended_)
            return;
        if (!stream)
            continue;
        if (const auto done = stream->hold(held); !done)
            fail(rank, done.error().message);
        held = held || stream->is_coming_in();
    }
}

void Job::check(Clock::time_point now) {
    if (joined_ < members_.size() && now - created_ > options_.join_time) {
        const auto missing = static_cast<std::size_t>(
            std::find_if(members_.begin(), members_.end(),
                         [](const Member& member) { return !member.control; }) -
            members_.begin());
        fail(fmt::format("worker {} of job \"{}\" has not joined within {} s", missing, name_,
                         seconds(options_.join_time)));
        return;
    }
    if (hints_)
        hints_->dispatch();
    check_silence();
    if (!has_ended_)
        check_stall(now);
}

void Job::check_silence() {
    for (std::size_t rank = 0; rank < members_.size() && !has_ended_; ++rank) {
        const Member& member = members_[rank];
        if (!member.control || member.left)
            continue;
        // A worker asks for signs of life, and gives them, once it has joined all servers.
        const auto allowed = member.control->is_kept_alive()
                                 ? options_.silence
                                 : std::max(options_.silence, options_.join_time);
        if (member.control->is_silent_for(allowed)) {
            fail(rank, fmt::format("has been silent for {} s", seconds(allowed)));
            return;
        }
        member.control->ping();
    }
}

void Job::check_stall(Clock::time_point now) {
    for (std::size_t tensor = 0; tensor < sums_.size() && !has_ended_; ++tensor) {
        if (now - progress_[tensor] >= options_.stall)
            blame_for_stall(tensor);
    }
}

/// Nothing of TENSOR has moved: ends the job if there is something to do.
void Job::blame_for_stall(std::size_t tensor) {
    const Accumulator& sum = sums_[tensor];
    const std::string& key = range(tensor).key;
    std::size_t behind = 0;
    std::uint64_t most = 0;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
        if (is_due(tensor, rank)) {
            fail(rank,
                 fmt::format("has taken nothing of \"{}\" for {} s", key, seconds(options_.stall)));
            return;
        }
        most = std::max(most, sum.pushed(rank));
        if (sum.pushed(rank) < sum.pushed(behind))
            behind = rank;
    }
    // In the order of the ranks nobody gets ahead, but whoever would can be seen waiting.
    if (sum.pushed(behind) < most || !paused_[tensor].empty()) {
        fail(behind,
             fmt::format("has pushed nothing of \"{}\" (round {}) for {} s, and others "
                         "wait for it",
                         key, sum.pushed(behind) / sum.bytes() + 1, seconds(options_.stall)));
    }
}

}  // namespace mercury::transport
