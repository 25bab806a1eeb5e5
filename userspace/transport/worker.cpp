// SPDX-License-Identifier: MIT
#include "transport/worker.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <fmt/format.h>

#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "layers/classes.hpp"
#include "transport/address.hpp"
#include "transport/control_channel.hpp"
#include "transport/in_flight.hpp"
#include "transport/job_hints.hpp"
#include "transport/plan.hpp"
#include "transport/push_queue.hpp"
#include "transport/sockets.hpp"
#include "transport/streams.hpp"
#include "transport/wire.hpp"

namespace mercury::transport {
namespace {

/// So long joining may wait for an answer of mercuryd, and once for one that does not come; later
/// nothing waits.
constexpr std::chrono::milliseconds hint_patience{1000};

/// When a data connection breaks, the control connection has so long to say why.
constexpr std::chrono::milliseconds reason_time{1000};

constexpr std::size_t classes_max = 16;
constexpr std::size_t name_bytes_max = 256;

Result<void> check_options(const WorkerOptions& options) {
    if (options.job.empty() || options.job.size() > name_bytes_max)
        return Error{fmt::format("the job's name must have 1 to {} bytes", name_bytes_max)};
    if (!is_utf8(options.job) || !is_utf8(options.token))
        return Error{"the job's name and the token must be UTF-8"};
    if (options.workers == 0 || options.rank >= options.workers) {
        return Error{fmt::format("rank {} of {} workers: it must be 0 to workers - 1", options.rank,
                                 options.workers)};
    }
    if (options.servers.empty())
        return Error{"no server is given"};
    for (const auto time : {options.join_time, options.silence}) {
        if (time.count() <= 0)
            return Error{"join_time and silence must be more than 0 ms"};
    }
    return {};
}

Result<std::size_t> check_tensors(const std::vector<Tensor>& tensors) {
    if (tensors.empty())
        return Error{"no tensor is given"};
    std::set<std::string_view> keys;
    std::size_t classes = 0;
    for (const Tensor& tensor : tensors) {
        if (tensor.key.empty() || tensor.key.size() > name_bytes_max)
            return Error{fmt::format("a tensor's key must have 1 to {} bytes", name_bytes_max)};
        if (!is_utf8(tensor.key))
            return Error{fmt::format("the key of tensor {} must be UTF-8", &tensor - &tensors[0])};
        if (!keys.insert(tensor.key).second)
            return Error{fmt::format("the key \"{}\" is given twice", tensor.key)};
        if (tensor.elements == 0)
            return Error{fmt::format("tensor \"{}\" has no elements", tensor.key)};
        if (tensor.elements > SIZE_MAX / size_of(tensor.type))
            return Error{fmt::format("tensor \"{}\" has too many elements", tensor.key)};
        if (tensor.priority_class >= classes_max) {
            return Error{fmt::format("tensor \"{}\" has class {}: it must be 0 to {}", tensor.key,
                                     tensor.priority_class, classes_max - 1)};
        }
        classes = std::max<std::size_t>(classes, tensor.priority_class + 1);
    }
    return classes;
}

Result<void> check_marks(const std::vector<std::uint32_t>& marks, std::size_t classes) {
    if (marks.empty() || marks.size() >= classes)
        return {};
    return Error{
        fmt::format("{} marks for {} classes: give one for each, or none", marks.size(), classes)};
}

}  // namespace

Marks default_marks(unsigned job, std::size_t classes) {
    Marks marks;
    for (std::size_t i = 0; i < classes; ++i) {
        marks.pull.push_back(mark_of_class(job, i));
        marks.push.push_back(mark_of_class(job, classes + i));
    }
    return marks;
}

class Worker::Impl {
  public:
    Impl(WorkerOptions options, std::vector<Tensor> tensors, std::size_t classes);
    ~Impl();

    Result<void> join();
    std::optional<std::size_t> index_of(std::string_view key) const;
    MarkingStatus marking() const;
    Result<Ticket> push_pull(std::size_t tensor, std::span<std::byte> buffer, Callback callback);
    Result<bool> wait_until(const Ticket& ticket, std::optional<Clock::time_point> deadline);

  private:
    /// One server's range of one tensor, and how far its current round is.
    struct Share {
        std::size_t begin = 0;  // bytes, in the tensor
        std::size_t bytes = 0;
        std::uint32_t index = 0;  // in the server's list
        std::size_t sent = 0;     // bytes given to TCP
        std::size_t received = 0;
    };
    struct PushLink {
        Fd socket;
        PushQueue queue;
        FrameHeaderBytes header{};  // of the current frame
        std::size_t header_left = 0;
        std::optional<std::size_t> tensor;  // of the current frame
        bool waits_for_room = false;
    };
    struct PullLink {
        Fd socket;
        HeaderReader header;
        std::size_t tensor = 0;  // of the current frame
        std::size_t left = 0;    // bytes of it
    };
    struct Server {
        std::string name;
        std::unique_ptr<ControlChannel> control;
        std::vector<Share> shares;         // by tensor
        std::vector<std::size_t> tensors;  // by index in the server's list
        std::deque<PushLink> push;         // by class
        std::deque<PullLink> pull;
    };
    /// What is in flight of a tensor; the worker thread's.
    struct Operation {
        std::byte* buffer = nullptr;
        std::uint64_t round = 0;
        std::size_t left = 0;  // bytes that have not come back; 0: not in flight
        Callback callback;
    };
    struct Request {
        std::size_t tensor = 0;
        std::uint64_t round = 0;
        std::byte* buffer = nullptr;
        Callback callback;
    };
    /// Where callers and the worker thread meet. Classes share no lock, so that none waits for
    /// another.
    struct Class {
        std::mutex mutex;
        std::condition_variable changed;
        std::vector<Request> inbox;
        std::map<std::size_t, std::pair<std::uint64_t, std::uint64_t>> rounds;  // begun, complete
    };

    void give_hints();
    Result<void> join_server(Server& server, const Address& address, std::size_t index,
                             std::size_t servers, Clock::time_point deadline);
    Join join_message(Server& server, std::size_t index, std::size_t servers);
    Result<Session> await_welcome(const Fd& socket, Clock::time_point deadline) const;
    Result<Fd> attach(const Address& address, ConnectionKind kind, const Attachment& attachment,
                      Clock::time_point deadline);
    SocketOptions socket_options(ConnectionKind kind, std::size_t priority_class);

    Result<void> start_serving();
    Result<void> watch_server(Server& server);
    void serve();
    Result<void> woken();
    void begin(Request request);
    Result<void> tick();
    Result<void> write_some(Server& server, PushLink& link);
    bool begin_frame(Server& server, PushLink& link);
    Result<void> want_write(PushLink& link, bool wanted);
    Result<void> read_some(Server& server, PullLink& link);
    Result<void> take_header(Server& server, PullLink& link);
    void complete(std::size_t tensor);
    void suspect(const Server& server, const Error& error);
    void leave();
    void fail(const std::string& why);
    void end(const std::string& why);
    Class& class_of(std::size_t tensor) { return classes_[tensors_[tensor].priority_class]; }

    WorkerOptions options_;
    std::vector<Tensor> tensors_;
    std::map<std::string_view, std::size_t> index_;
    std::deque<Class> classes_;

    Fd wake_;
    std::atomic<bool> leaving_ = false;
    std::atomic<bool> ended_ = false;
    std::string why_;  // set before ended_, and never again

    // The worker thread's.
    Reactor reactor_;
    Timer timer_;
    std::deque<Server> servers_;
    std::vector<Operation> operations_;  // by tensor
    std::size_t in_flight_ = 0;          // tensors
    std::optional<JobHints> hints_;
    std::optional<std::pair<std::string, Clock::time_point>> suspicion_;

    std::thread thread_;
};

Worker::Impl::Impl(WorkerOptions options, std::vector<Tensor> tensors, std::size_t classes)
    : options_(std::move(options)),
      tensors_(std::move(tensors)),
      classes_(classes),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      operations_(tensors_.size()) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        index_[tensors_[i].key] = i;
        class_of(i).rounds[i] = {0, 0};
    }
}

Worker::Impl::~Impl() {
    if (!thread_.joinable())
        return;
    leaving_ = true;
    eventfd_write(wake_.get(), 1);
    thread_.join();
}

Result<void> Worker::Impl::join() {
    const auto deadline = Clock::now() + options_.join_time;
    std::vector<Address> addresses;
    for (const std::string& text : options_.servers) {
        const auto parsed = Address::parse(text);
        if (!parsed)
            return parsed.error();
        addresses.insert(addresses.end(), parsed.value().begin(), parsed.value().end());
    }
    give_hints();
    servers_.resize(addresses.size());
    for (std::size_t i = 0; i < addresses.size(); ++i) {
        servers_[i].name = fmt::format("server {}", addresses[i].to_string());
        const auto joined = join_server(servers_[i], addresses[i], i, addresses.size(), deadline);
        if (joined)
            continue;
        Error why{fmt::format("{}: {}", servers_[i].name, joined.error().message)};
        // For the other workers; who does not hear it sees the connection closed.
        for (const Server& earlier : servers_) {
            if (earlier.control)
                static_cast<void>(
                    send_all(earlier.control->socket(), encode(Failure{why.message}), deadline));
        }
        return why;
    }
    return start_serving();
}

void Worker::Impl::give_hints() {
    if (!options_.hints || !options_.push_marks.empty() || !options_.pull_marks.empty())
        return;
    std::vector<std::uint64_t> bytes(classes_.size());
    for (const Tensor& tensor : tensors_)
        bytes[tensor.priority_class] += tensor.elements * size_of(tensor.type);
    hints_.emplace(*options_.hints, options_.job, bytes, hint_patience);
}

MarkingStatus Worker::Impl::marking() const {
    if (hints_)
        return hints_->status();
    const bool has_marks = !options_.push_marks.empty() || !options_.pull_marks.empty();
    return {has_marks ? MarkedBy::program : MarkedBy::nobody, 0, 0, 0, ""};
}

Result<void> Worker::Impl::join_server(Server& server, const Address& address, std::size_t index,
                                       std::size_t servers, Clock::time_point deadline) {
    auto control = connect_to(address, socket_options(ConnectionKind::control, 0), deadline);
    if (!control)
        return control.error();
    const auto preamble = encode_preamble(ConnectionKind::control);
    const auto hello = encode(Hello{options_.job, options_.token});
    const auto join = encode(join_message(server, index, servers));
    if (join.size() > control_prefix_size + control_bytes_max)
        return Error{fmt::format("the list of {} tensors is too long", tensors_.size())};
    for (const std::span<const std::byte> part :
         {std::span<const std::byte>(preamble), std::span<const std::byte>(hello),
          std::span<const std::byte>(join)}) {
        // A refusal may come, and the connection go, before all is sent: then it says why.
        if (!send_all(control.value(), part, deadline))
            break;
    }
    const auto session = await_welcome(control.value(), deadline);
    if (!session)
        return session.error();
    server.control = std::make_unique<ControlChannel>(std::move(control).value(), reactor_);
    server.control->set_limit(control_bytes_max);

    for (std::size_t c = 0; c < classes_.size(); ++c) {
        const Attachment attachment{session.value(), static_cast<std::uint32_t>(c)};
        auto push = attach(address, ConnectionKind::push, attachment, deadline);
        if (!push)
            return push.error();
        PushLink& link = server.push.emplace_back();
        link.socket = std::move(push).value();
        for (const std::size_t tensor : server.tensors) {
            if (tensors_[tensor].priority_class == c)
                link.queue.expect_tensor();
        }
        auto pull = attach(address, ConnectionKind::pull, attachment, deadline);
        if (!pull)
            return pull.error();
        server.pull.emplace_back().socket = std::move(pull).value();
    }
    return {};
}

Join Worker::Impl::join_message(Server& server, std::size_t index, std::size_t servers) {
    Join join;
    join.rank = options_.rank;
    join.workers = options_.workers;
    join.server = static_cast<std::uint32_t>(index);
    join.servers = static_cast<std::uint32_t>(servers);
    join.order = options_.order;
    join.dscp = options_.dscp;
    join.hints = hints_.has_value();
    join.pull_marks = options_.pull_marks;
    join.pull_marks.resize(classes_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const Tensor& tensor = tensors_[i];
        const Part part = part_of(tensor.elements, index, servers, i);
        Share& share = server.shares.emplace_back();
        if (part.count == 0)
            continue;
        const std::size_t size = size_of(tensor.type);
        share.begin = part.first * size;
        share.bytes = part.count * size;
        share.index = static_cast<std::uint32_t>(server.tensors.size());
        server.tensors.push_back(i);
        join.tensors.push_back({tensor.key, tensor.type, tensor.reduction, tensor.priority_class,
                                tensor.elements, part.first, part.count});
    }
    return join;
}

Result<Session> Worker::Impl::await_welcome(const Fd& socket, Clock::time_point deadline) const {
    const auto unanswered = [](const Error& why) {
        return Error{"does not answer the join: " + why.message};
    };
    std::array<std::byte, control_prefix_size> prefix{};
    if (auto received = receive_all(socket, prefix, deadline); !received)
        return unanswered(received.error());
    const auto length = decode_control_length(prefix, control_bytes_max);
    if (!length)
        return length.error();
    std::vector<std::byte> text(length.value());
    if (auto received = receive_all(socket, text, deadline); !received)
        return unanswered(received.error());
    const auto message = decode_control(text);
    if (!message)
        return message.error();
    if (const auto* const failure = std::get_if<Failure>(&message.value()); failure != nullptr)
        return Error{failure->message};
    if (const auto* const welcome = std::get_if<Welcome>(&message.value()); welcome != nullptr)
        return welcome->session;
    return Error{"answered the join with something else than a welcome"};
}

Result<Fd> Worker::Impl::attach(const Address& address, ConnectionKind kind,
                                const Attachment& attachment, Clock::time_point deadline) {
    auto socket = connect_to(address, socket_options(kind, attachment.priority_class), deadline);
    if (!socket)
        return socket;
    if (auto sent = send_all(socket.value(), encode_preamble(kind), deadline); !sent)
        return sent.error();
    if (auto sent = send_all(socket.value(), encode(attachment), deadline); !sent)
        return sent.error();
    return socket;
}

SocketOptions Worker::Impl::socket_options(ConnectionKind kind, std::size_t priority_class) {
    SocketOptions options;
    // The acknowledgements of a pull connection go with the pushes.
    if (!options_.push_marks.empty())
        options.mark = options_.push_marks[priority_class];
    if (hints_) {
        options.hints = &*hints_;
        options.layer = layer_of_pushes(priority_class, classes_.size());
    }
    if (options_.dscp)
        options.dscp = dscp_of_class(priority_class);
    // As much as the pushes have, on whose way the acknowledgements go: with less, a pull would
    // wait for these longer than its window lasts.
    if (kind == ConnectionKind::pull)
        options.receive_window = window_for(options_.in_flight, servers_.size());
    return options;
}

Result<void> Worker::Impl::start_serving() {
    if (auto done = reactor_.watch(wake_.get(), EPOLLIN,
                                   [this](std::uint32_t /*events*/) { return woken(); });
        !done)
        return done;
    if (auto done = timer_.attach(reactor_, [this] { return tick(); }); !done)
        return done;
    if (auto armed = timer_.arm(Clock::now()); !armed)
        return armed;
    for (Server& server : servers_) {
        if (auto watched = watch_server(server); !watched)
            return watched;
    }
    if (hints_)
        hints_->stop_waiting();
    thread_ = std::thread([this] { serve(); });
    return {};
}

Result<void> Worker::Impl::watch_server(Server& server) {
    server.control->set_receiver(
        [this, &server](const Control& message) -> Result<void> {
            if (const auto* const failure = std::get_if<Failure>(&message); failure != nullptr)
                fail(fmt::format("{}: {}", server.name, failure->message));
            else
                return Error{"sent a control message that has no place here"};
            return {};
        },
        [this, &server](const Error& why) {
            fail(fmt::format("{} {}", server.name, why.message));
        });
    if (auto started = server.control->start(); !started)
        return started;
    for (std::size_t c = 0; c < classes_.size(); ++c) {
        const auto rank = 1 + static_cast<unsigned>(c);  // 0 is for control
        PushLink& push = server.push[c];
        PullLink& pull = server.pull[c];
        auto done = reactor_.watch(
            push.socket.get(), 0,
            [this, &server, &push](std::uint32_t events) -> Result<void> {
                // Nothing else is asked for but to be told of its end.
                const auto outcome = (events & EPOLLOUT) != 0
                                         ? write_some(server, push)
                                         : Result<void>{Error{"closed a connection for pushes"}};
                if (!outcome) {
                    reactor_.unwatch(push.socket.get());
                    suspect(server, outcome.error());
                }
                return {};
            },
            rank);
        if (!done)
            return done;
        done = reactor_.watch(
            pull.socket.get(), EPOLLIN,
            [this, &server, &pull](std::uint32_t /*events*/) -> Result<void> {
                if (const auto outcome = read_some(server, pull); !outcome) {
                    reactor_.unwatch(pull.socket.get());
                    suspect(server, outcome.error());
                }
                return {};
            },
            rank);
        if (!done)
            return done;
    }
    return {};
}

void Worker::Impl::serve() {
    if (const auto done = reactor_.run(); !done)
        fail(done.error().message);
    if (!ended_)
        leave();
}

/// What is in flight comes no more. Waits until all servers know: with the last connection the
/// kernel may throw away what a server has not got yet.
void Worker::Impl::leave() {
    end("this worker has left the job");
    for (const Server& server : servers_) {
        server.control->send(Leave{});
        server.control->finish();
    }
    const auto deadline = Clock::now() + options_.silence;
    for (const Server& server : servers_) {
        std::array<std::byte, 1> unread{};
        while (receive_all(server.control->socket(), unread, deadline)) {
        }
    }
}

std::optional<std::size_t> Worker::Impl::index_of(std::string_view key) const {
    const auto found = index_.find(key);
    return found == index_.end() ? std::nullopt : std::optional(found->second);
}

Result<Worker::Ticket> Worker::Impl::push_pull(std::size_t tensor, std::span<std::byte> buffer,
                                               Callback callback) {
    if (tensor >= tensors_.size()) {
        return Error{fmt::format("there is no tensor number {}; the last is {}", tensor,
                                 tensors_.size() - 1)};
    }
    const Tensor& shape = tensors_[tensor];
    if (buffer.size() != shape.elements * size_of(shape.type)) {
        return Error{fmt::format("the buffer for \"{}\" has {} bytes instead of {}", shape.key,
                                 buffer.size(), shape.elements * size_of(shape.type))};
    }
    Class& meeting = class_of(tensor);
    std::uint64_t round = 0;
    {
        const std::lock_guard lock(meeting.mutex);
        if (ended_)
            return Error{why_};
        auto& [begun, complete] = meeting.rounds.at(tensor);
        if (begun != complete) {
            return Error{fmt::format("\"{}\" is still in flight: wait for its round {} first",
                                     shape.key, begun)};
        }
        round = begun + 1;
        meeting.inbox.push_back({tensor, round, buffer.data(), std::move(callback)});
        begun = round;  // not before: there may have been no memory for the request
    }
    eventfd_write(wake_.get(), 1);
    return Ticket{tensor, round};
}

/// False if the round is still in flight at DEADLINE, if there is one.
Result<bool> Worker::Impl::wait_until(const Ticket& ticket,
                                      std::optional<Clock::time_point> deadline) {
    if (ticket.tensor >= tensors_.size())
        return Error{fmt::format("there is no tensor number {}", ticket.tensor)};
    Class& meeting = class_of(ticket.tensor);
    std::unique_lock lock(meeting.mutex);
    const auto& [begun, complete] = meeting.rounds.at(ticket.tensor);
    if (ticket.round > begun) {
        return Error{fmt::format("round {} of \"{}\" was not begun", ticket.round,
                                 tensors_[ticket.tensor].key)};
    }
    const auto over = [&, &done = complete] { return done >= ticket.round || ended_; };
    const bool waits = !over() && (!deadline || *deadline > Clock::now());
    if (waits && std::this_thread::get_id() == thread_.get_id())
        return Error{"a callback cannot wait: it is what the worker's thread is busy with"};
    if (waits && !deadline)
        meeting.changed.wait(lock, over);
    else if (waits)
        meeting.changed.wait_until(lock, *deadline, over);
    if (complete >= ticket.round)
        return true;
    return ended_ ? Result<bool>{Error{why_}} : false;
}

Result<void> Worker::Impl::woken() {
    eventfd_t unused = 0;
    eventfd_read(wake_.get(), &unused);
    for (Class& meeting : classes_) {
        std::vector<Request> requests;
        {
            const std::lock_guard lock(meeting.mutex);
            requests.swap(meeting.inbox);
        }
        for (Request& request : requests)
            begin(std::move(request));
    }
    if (leaving_)
        reactor_.stop();
    return {};
}

void Worker::Impl::begin(Request request) {
    if (ended_) {
        if (request.callback)
            request.callback(Error{why_});
        return;
    }
    if (hints_)
        hints_->begin(request.round);
    ++in_flight_;
    Operation& operation = operations_[request.tensor];
    const Tensor& shape = tensors_[request.tensor];
    operation = {request.buffer, request.round, shape.elements * size_of(shape.type),
                 std::move(request.callback)};
    for (Server& server : servers_) {
        Share& share = server.shares[request.tensor];
        if (share.bytes == 0)
            continue;
        share.sent = 0;
        share.received = 0;
        PushLink& link = server.push[shape.priority_class];
        link.queue.add({request.round, request.tensor});
        if (link.waits_for_room || ended_)
            continue;
        if (const auto written = write_some(server, link); !written)
            suspect(server, written.error());
    }
}

bool Worker::Impl::begin_frame(Server& server, PushLink& link) {
    const auto next = link.queue.take();
    if (!next)
        return false;
    const Share& share = server.shares[next->tensor];
    link.header = encode(FrameHeader{share.index, next->round, 0, share.bytes});
    link.header_left = link.header.size();
    link.tensor = next->tensor;
    return true;
}

Result<void> Worker::Impl::write_some(Server& server, PushLink& link) {
    for (std::size_t moved = 0; moved < turn_bytes;) {
        if (!link.tensor && !begin_frame(server, link))
            return want_write(link, false);
        Share& share = server.shares[*link.tensor];
        std::array<iovec, 2> parts{};
        parts[0] = {link.header.data() + link.header.size() - link.header_left, link.header_left};
        parts[1] = {operations_[*link.tensor].buffer + share.begin + share.sent,
                    share.bytes - share.sent};
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = parts.size();
        const ssize_t size = sendmsg(link.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (size < 0)
            return errno == EAGAIN ? want_write(link, true) : Result<void>{connection_error()};
        const auto sent = static_cast<std::size_t>(size);
        const std::size_t of_header = std::min(sent, link.header_left);
        link.header_left -= of_header;
        share.sent += sent - of_header;
        moved += sent;
        if (share.sent < share.bytes)
            return want_write(link, true);
        link.tensor.reset();
    }
    return want_write(link, true);
}

Result<void> Worker::Impl::want_write(PushLink& link, bool wanted) {
    if (wanted == link.waits_for_room)
        return {};
    link.waits_for_room = wanted;
    return reactor_.change(link.socket.get(), wanted ? std::uint32_t{EPOLLOUT} : 0);
}

Result<void> Worker::Impl::take_header(Server& server, PullLink& link) {
    const auto header = link.header.take();
    if (!header)
        return header.error();
    const FrameHeader& frame = header.value();
    if (frame.tensor >= server.tensors.size())
        return Error{fmt::format("sends a tensor number {} that it does not have", frame.tensor)};
    const std::size_t tensor = server.tensors[frame.tensor];
    const Share& share = server.shares[tensor];
    const Operation& operation = operations_[tensor];
    // Beyond SENT the buffer still holds what is to be pushed.
    if (operation.left == 0 || frame.round != operation.round || frame.offset != share.received ||
        frame.bytes == 0 || frame.bytes > share.sent - share.received ||
        &server.pull[tensors_[tensor].priority_class] != &link) {
        return Error{fmt::format(
            "sends bytes {} to {} of round {} of \"{}\" where they do not "
            "belong",
            frame.offset, frame.offset + frame.bytes, frame.round, tensors_[tensor].key)};
    }
    link.tensor = tensor;
    link.left = frame.bytes;
    return {};
}

Result<void> Worker::Impl::read_some(Server& server, PullLink& link) {
    for (std::size_t moved = 0; moved < turn_bytes;) {
        if (link.left == 0) {
            const auto state = link.header.read(link.socket);
            if (!state)
                return state.error();
            if (state.value() == HeaderReader::State::closed)
                return Error{"closed a connection for pulls"};
            if (state.value() == HeaderReader::State::incomplete)
                return {};
            if (auto taken = take_header(server, link); !taken)
                return taken;
        }
        Share& share = server.shares[link.tensor];
        Operation& operation = operations_[link.tensor];
        const ssize_t size =
            recv(link.socket.get(), operation.buffer + share.begin + share.received, link.left,
                 MSG_DONTWAIT);
        if (size == 0)
            return Error{
                fmt::format("closed the connection within \"{}\"", tensors_[link.tensor].key)};
        if (size < 0)
            return errno == EAGAIN ? Result<void>{} : Result<void>{connection_error()};
        const auto bytes = static_cast<std::size_t>(size);
        link.left -= bytes;
        share.received += bytes;
        moved += bytes;
        operation.left -= bytes;
        if (operation.left == 0)
            complete(link.tensor);
    }
    return {};
}

void Worker::Impl::complete(std::size_t tensor) {
    if (--in_flight_ == 0 && hints_)
        hints_->dispatch();
    Class& meeting = class_of(tensor);
    Callback callback = std::move(operations_[tensor].callback);
    {
        const std::lock_guard lock(meeting.mutex);
        auto& [begun, complete] = meeting.rounds.at(tensor);
        complete = begun;
    }
    meeting.changed.notify_all();
    if (callback)
        callback({});
}

Result<void> Worker::Impl::tick() {
    const auto now = Clock::now();
    if (suspicion_ && now >= suspicion_->second) {
        fail(suspicion_->first);
        return {};
    }
    for (const Server& server : servers_) {
        if (server.control->is_silent_for(options_.silence)) {
            fail(
                fmt::format("{} has been silent for {} ms", server.name, options_.silence.count()));
            return {};
        }
        server.control->ping();
        if (ended_)
            return {};
    }
    if (hints_)
        hints_->dispatch();
    auto next = now + options_.silence / 4;
    if (suspicion_)
        next = std::min(next, suspicion_->second);
    return timer_.arm(next);
}

/// A data connection has broken: the server may be about to tell why.
void Worker::Impl::suspect(const Server& server, const Error& error) {
    if (suspicion_ || ended_)
        return;
    const auto until = Clock::now() + reason_time;
    suspicion_.emplace(fmt::format("{} {}", server.name, error.message), until);
    if (const auto armed = timer_.arm(until); !armed)
        fail(armed.error().message);
}

/// Tells the callers, and the servers for the other workers.
void Worker::Impl::fail(const std::string& why) {
    if (ended_)
        return;
    end(why);
    for (const Server& server : servers_)
        server.control->send(Failure{why});
}

void Worker::Impl::end(const std::string& why) {
    why_ = why;
    ended_ = true;
    reactor_.stop();
    std::vector<Callback> callbacks;
    for (Class& meeting : classes_) {
        {
            // Whoever holds the lock has either seen ended_ or is in the inbox.
            const std::lock_guard lock(meeting.mutex);
            for (Request& request : std::exchange(meeting.inbox, {}))
                callbacks.push_back(std::move(request.callback));
        }
        meeting.changed.notify_all();
    }
    for (Operation& operation : operations_) {
        if (operation.left != 0)
            callbacks.push_back(std::move(operation.callback));
    }
    // From here on no byte of any buffer is touched.
    for (const Callback& callback : callbacks) {
        if (callback)
            callback(Error{why});
    }
}

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::~Worker() = default;

Result<std::unique_ptr<Worker>> Worker::join(WorkerOptions options, std::vector<Tensor> tensors) {
    if (auto right = check_options(options); !right)
        return right.error();
    const auto classes = check_tensors(tensors);
    if (!classes)
        return classes.error();
    for (const auto* const marks : {&options.push_marks, &options.pull_marks}) {
        if (auto right = check_marks(*marks, classes.value()); !right)
            return right.error();
    }
    auto impl = std::make_unique<Impl>(std::move(options), std::move(tensors), classes.value());
    if (auto joined = impl->join(); !joined)
        return joined.error();
    return std::unique_ptr<Worker>(new Worker(std::move(impl)));
}

std::optional<std::size_t> Worker::index_of(std::string_view key) const {
    return impl_->index_of(key);
}

MarkingStatus Worker::marking() const {
    return impl_->marking();
}

Result<Worker::Ticket> Worker::push_pull(std::size_t tensor, std::span<std::byte> buffer,
                                         Callback callback) {
    return impl_->push_pull(tensor, buffer, std::move(callback));
}

Result<void> Worker::wait(const Ticket& ticket) {
    const auto done = impl_->wait_until(ticket, std::nullopt);
    return done ? Result<void>{} : done.error();
}

Result<bool> Worker::wait_for(const Ticket& ticket, std::chrono::milliseconds time) {
    return impl_->wait_until(ticket, Clock::now() + time);
}

}  // namespace mercury::transport
