// SPDX-License-Identifier: MIT
#include "transport/streams.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <fmt/format.h>

#include "transport/job.hpp"
#include "transport/sockets.hpp"

namespace mercury::transport {
namespace {

/// Frames are no longer than this, so that a more urgent tensor of the class need not wait.
constexpr std::size_t frame_bytes_max = std::size_t{256} << 10;

/// What recv() fills and the sum reads at once: small enough for the second-level cache.
constexpr std::size_t scratch_bytes = std::size_t{128} << 10;

unsigned rank_of_class(std::size_t priority_class) {
    return 1 + static_cast<unsigned>(priority_class);  // 0 is for control
}

}  // namespace

Result<HeaderReader::State> HeaderReader::read(const Fd& socket) {
    const ssize_t size =
        recv(socket.get(), bytes_.data() + size_, bytes_.size() - size_, MSG_DONTWAIT);
    if (size == 0) {
        if (size_ != 0)
            return Error{"closed the connection within a frame's header"};
        return State::closed;
    }
    if (size < 0) {
        if (errno == EAGAIN)
            return State::incomplete;
        return connection_error();
    }
    size_ += static_cast<std::size_t>(size);
    return size_ == bytes_.size() ? State::complete : State::incomplete;
}

Result<FrameHeader> HeaderReader::take() {
    size_ = 0;
    return decode_frame_header(bytes_);
}

PushStream::PushStream(Fd socket, Reactor& reactor, Job& job, std::size_t rank,
                       std::size_t priority_class)
    : socket_(std::move(socket)),
      reactor_(reactor),
      job_(job),
      rank_(rank),
      priority_class_(priority_class) {}

PushStream::~PushStream() {
    stop();
}

void PushStream::stop() {
    stopped_ = true;
    reactor_.unwatch(socket_.get());
}

Result<void> PushStream::start() {
    return reactor_.watch(
        socket_.get(), EPOLLIN,
        [this](std::uint32_t events) -> Result<void> {
            if (const auto done = readable(events); !done)
                job_.fail(rank_, done.error().message);
            job_.put_in_order(rank_);
            return {};
        },
        rank_of_class(priority_class_), &job_);
}

void PushStream::resume() {
    waits_for_room_ = false;
    if (const auto changed = want_read(); !changed)
        job_.fail(rank_, changed.error().message);
    job_.put_in_order(rank_);
}

Result<void> PushStream::hold(bool held) {
    if (held == held_)
        return {};
    held_ = held;
    return want_read();
}

Result<void> PushStream::want_read() {
    if (stopped_)
        return {};
    return reactor_.change(socket_.get(), held_ || waits_for_room_ ? 0 : std::uint32_t{EPOLLIN});
}

Result<void> PushStream::begin_frame() {
    const auto header = header_.take();
    if (!header)
        return header.error();
    const FrameHeader& frame = header.value();
    if (frame.tensor >= job_.tensors() ||
        job_.range(frame.tensor).priority_class != priority_class_) {
        return Error{fmt::format("pushes tensor number {}, which class {} does not have",
                                 frame.tensor, priority_class_)};
    }
    const Accumulator& sum = job_.sum(frame.tensor);
    const std::string& key = job_.range(frame.tensor).key;
    if (frame.offset != 0 || frame.bytes != sum.bytes()) {
        return Error{fmt::format("pushes {} bytes from byte {} of \"{}\", whose range has {}",
                                 frame.bytes, frame.offset, key, sum.bytes())};
    }
    const std::uint64_t expected = sum.pushed(rank_) / sum.bytes() + 1;
    if (frame.round != expected) {
        return Error{fmt::format("pushes round {} of \"{}\" where round {} is next", frame.round,
                                 key, expected)};
    }
    if (sum.pulled(rank_) != sum.pushed(rank_)) {
        return Error{fmt::format("pushes round {} of \"{}\" before round {} has come back",
                                 frame.round, key, frame.round - 1)};
    }
    tensor_ = frame.tensor;
    left_ = frame.bytes;
    job_.begin(frame.round);
    return {};
}

/// There is no room for what it sends.
Result<void> PushStream::pause(std::uint32_t events) {
    // Nobody is left who could wait, and the same would be reported again and again.
    if ((events & (EPOLLHUP | EPOLLERR)) != 0)
        return closed_within();
    job_.pause(tensor_, *this);
    waits_for_room_ = true;
    return want_read();
}

Error PushStream::closed_within() const {
    return Error{fmt::format("closed the connection within \"{}\"", job_.range(tensor_).key)};
}

Result<void> PushStream::readable(std::uint32_t events) {
    thread_local std::vector<std::byte> scratch(scratch_bytes);

    for (std::size_t moved = 0; moved < turn_bytes;) {
        if (left_ == 0) {
            const auto state = header_.read(socket_);
            if (!state)
                return state.error();
            if (state.value() == HeaderReader::State::closed)
                stop();  // the control connection tells whether the worker has left or died
            if (state.value() != HeaderReader::State::complete)
                return {};
            if (auto begun = begin_frame(); !begun)
                return begun;
        }
        if (job_.is_left())
            return Error{job_.pushes_in_vain(rank_, tensor_)};
        Accumulator& sum = job_.sum(tensor_);
        const std::size_t room = std::min<std::uint64_t>(sum.room(rank_), left_);
        if (room == 0)
            return pause(events);
        // Whoever is first receives where the sum is to be.
        const std::span<std::byte> place = sum.place(rank_);
        const std::span<std::byte> buffer = place.empty() ? std::span(scratch) : place;
        const std::size_t wanted = std::min(room, scratch.size());
        const ssize_t size = recv(socket_.get(), buffer.data(), wanted, MSG_DONTWAIT);
        if (size == 0)
            return closed_within();
        if (size < 0)
            return errno == EAGAIN ? Result<void>{} : Result<void>{connection_error()};

        const auto bytes = static_cast<std::size_t>(size);
        sum.add(rank_, buffer.first(bytes));
        left_ -= bytes;
        moved += bytes;
        job_.pushed(tensor_);
        if (job_.has_ended())
            return {};
    }
    return {};
}

PullStream::PullStream(Fd socket, Reactor& reactor, Job& job, std::size_t rank,
                       std::size_t priority_class)
    : socket_(std::move(socket)),
      reactor_(reactor),
      job_(job),
      rank_(rank),
      priority_class_(priority_class) {}

PullStream::~PullStream() {
    stop();
}

void PullStream::stop() {
    closed_ = true;
    reactor_.unwatch(socket_.get());
}

Result<void> PullStream::start() {
    return reactor_.watch(
        socket_.get(), EPOLLIN,
        [this](std::uint32_t events) -> Result<void> {
            serve((events & ~std::uint32_t{EPOLLOUT}) != 0 ? read_end() : write_some());
            return {};
        },
        rank_of_class(priority_class_), &job_);
}

void PullStream::serve(const Result<void>& outcome) {
    if (!outcome)
        job_.fail(rank_, outcome.error().message);
}

Result<void> PullStream::read_end() {
    std::byte unused{};
    const ssize_t size = recv(socket_.get(), &unused, sizeof(unused), MSG_DONTWAIT);
    if (size > 0)
        return Error{"sends where it should receive"};
    if (size < 0)
        return errno == EAGAIN ? Result<void>{} : Result<void>{connection_error()};
    stop();  // the control connection tells whether the worker has left or died
    return {};
}

void PullStream::offer(std::uint64_t round, std::size_t tensor) {
    offered_.emplace(round, tensor);
    if (closed_)
        serve(Error{"closed the connection"});
    else if (!waits_for_room_)
        serve(write_some());
}

bool PullStream::begin_frame() {
    if (offered_.empty())
        return false;
    const auto [round, tensor] = *offered_.begin();
    const Accumulator& sum = job_.sum(tensor);
    tensor_ = tensor;
    left_ = std::min(sum.ready(rank_).size(), frame_bytes_max);
    header_ = encode(FrameHeader{static_cast<std::uint32_t>(tensor), round,
                                 sum.pulled(rank_) % sum.bytes(), left_});
    header_left_ = header_.size();
    return true;
}

Result<void> PullStream::write_some() {
    for (std::size_t moved = 0; moved < turn_bytes;) {
        if (left_ == 0 && !begin_frame())
            return want_write(false);
        Accumulator& sum = job_.sum(tensor_);
        const auto payload = sum.ready(rank_).first(left_);
        std::array<iovec, 2> parts{};
        parts[0] = {header_.data() + header_.size() - header_left_, header_left_};
        // The socket API has no constant buffers to send from.
        parts[1] = {const_cast<std::byte*>(payload.data()), payload.size()};
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = parts.size();
        const ssize_t size = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (size < 0)
            return errno == EAGAIN ? want_write(true) : Result<void>{connection_error()};

        const auto sent = static_cast<std::size_t>(size);
        const std::size_t of_header = std::min(sent, header_left_);
        const std::size_t of_payload = sent - of_header;
        const bool all = sent == header_left_ + left_;
        header_left_ -= of_header;
        left_ -= of_payload;
        moved += sent;
        if (of_payload > 0) {
            const auto offer = std::pair{sum.pulled(rank_) / sum.bytes() + 1, tensor_};
            sum.take(rank_, of_payload);
            if (sum.ready(rank_).empty())
                offered_.erase(offer);
            job_.pulled(tensor_);
            if (job_.has_ended())
                return {};
        }
        if (!all)
            return want_write(true);
    }
    return want_write(true);
}

Result<void> PullStream::want_write(bool wanted) {
    if (wanted == waits_for_room_)
        return {};
    waits_for_room_ = wanted;
    return reactor_.change(socket_.get(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

}  // namespace mercury::transport
