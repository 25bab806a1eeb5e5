// SPDX-License-Identifier: MIT
#include "daemon/lane.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <sys/epoll.h>
#include <sys/eventfd.h>

namespace mercury::daemon {

struct Inbox::Queue {
    Fd ready{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    std::mutex mutex;
    std::deque<Work> work;
};

Inbox::Inbox() : queue_(std::make_unique<Queue>()) {}
Inbox::~Inbox() = default;

Result<void> Inbox::attach(Reactor& reactor) {
    return reactor.watch(queue_->ready.get(), EPOLLIN,
                         [this](std::uint32_t /*events*/) -> Result<void> {
                             eventfd_t count = 0;
                             eventfd_read(queue_->ready.get(), &count);
                             std::deque<Work> due;
                             {
                                 const std::scoped_lock lock(queue_->mutex);
                                 due.swap(queue_->work);
                             }
                             for (const Work& work : due)
                                 work();
                             return {};
                         });
}

void Inbox::detach(Reactor& reactor) {
    reactor.unwatch(queue_->ready.get());
}

void Inbox::post(Work work) {
    {
        const std::scoped_lock lock(queue_->mutex);
        queue_->work.push_back(std::move(work));
    }
    eventfd_write(queue_->ready.get(), 1);
}

struct Lane::Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Work> work;
    bool ended = false;
};

Lane::~Lane() {
    if (!queue_)
        return;
    const std::scoped_lock lock(queue_->mutex);
    queue_->ended = true;
    queue_->changed.notify_one();
}

void Lane::post(Work work) {
    if (!queue_) {
        auto queue = std::make_shared<Queue>();
        try {
            std::thread([queue] { run(queue); }).detach();
        } catch (const std::system_error& /*problem*/) {
            return work();  // no more threads: better late than never
        }
        queue_ = std::move(queue);
    }
    const std::scoped_lock lock(queue_->mutex);
    queue_->work.push_back(std::move(work));
    queue_->changed.notify_one();
}

void Lane::run(const std::shared_ptr<Queue>& queue) {
    std::unique_lock lock(queue->mutex);
    for (;;) {
        queue->changed.wait(lock, [&] { return queue->ended || !queue->work.empty(); });
        if (queue->work.empty())
            return;
        Work work = std::move(queue->work.front());
        queue->work.pop_front();
        lock.unlock();
        work();
        work = nullptr;  // what it holds may take its time as well
        lock.lock();
    }
}

}  // namespace mercury::daemon
