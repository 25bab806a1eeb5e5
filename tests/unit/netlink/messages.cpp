// SPDX-License-Identifier: MIT
#include "messages.hpp"

#include <cstring>

#include <linux/gen_stats.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <mercury.h>

namespace mercury::netlink::test {

Message::Message(std::uint16_t type, std::uint16_t flags, std::uint32_t sequence) {
    nlmsghdr header{};
    header.nlmsg_type = type;
    header.nlmsg_flags = flags;
    header.nlmsg_seq = sequence;
    add(header);
}

Message& Message::raw(const void* data, std::size_t size) {
    const auto* const first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + size);
    bytes_.resize((bytes_.size() + 3) / 4 * 4);
    return *this;
}

Message& Message::attribute(std::uint16_t type, const void* data, std::size_t size) {
    nlattr header{};
    header.nla_type = type;
    header.nla_len = static_cast<std::uint16_t>(sizeof(header) + size);
    return add(header).raw(data, size);
}

Message& Message::nest(std::uint16_t type, const std::function<void(Message&)>& fill) {
    const std::size_t start = bytes_.size();
    attribute(static_cast<std::uint16_t>(type | NLA_F_NESTED), nullptr, 0);
    fill(*this);
    const auto length = static_cast<std::uint16_t>(bytes_.size() - start);
    std::memcpy(bytes_.data() + start, &length, sizeof(length));
    return *this;
}

std::vector<std::byte> Message::bytes() const {
    auto copy = bytes_;
    const auto length = static_cast<std::uint32_t>(copy.size());
    std::memcpy(copy.data(), &length, sizeof(length));
    return copy;
}

namespace {

void add_statistics(Message& message, bool is_qdisc) {
    message.nest(TCA_STATS2, [&](Message& stats) {
        gnet_stats_basic basic{};
        basic.bytes = 123456;
        basic.packets = 77;
        stats.attribute(TCA_STATS_BASIC, basic);
        stats.attribute(TCA_STATS_PKT64, std::uint64_t{0x1'0000'004d});
        gnet_stats_queue queue{};
        queue.qlen = 5;
        queue.backlog = 6;
        queue.drops = 7;
        queue.requeues = 8;
        queue.overlimits = 9;
        stats.attribute(TCA_STATS_QUEUE, queue);
        stats.nest(TCA_STATS_APP, [&](Message& application) {
            for (std::uint16_t type = TCA_MERCURY_STATS_MEMORY; type < TCA_MERCURY_STATS_SOJOURN;
                 ++type) {
                if (type == TCA_MERCURY_STATS_ACTIVE_JOBS)
                    application.attribute(type, std::uint32_t{type});
                else
                    application.attribute(type, std::uint64_t{type} << 33);
            }
            const std::vector<std::uint64_t> sojourn{1, 2, 3, 4};
            if (!is_qdisc)
                application.attribute(TCA_MERCURY_STATS_SOJOURN, sojourn.data(),
                                      sojourn.size() * sizeof(sojourn[0]));
        });
    });
}

tcmsg header_of(std::uint32_t handle) {
    tcmsg header{};
    header.tcm_ifindex = 3;
    header.tcm_handle = handle;
    header.tcm_parent = TC_H_ROOT;
    header.tcm_info = 0x80010000;
    return header;
}

}  // namespace

std::vector<std::byte> full_qdisc() {
    Message message(RTM_NEWQDISC, NLM_F_MULTI, 5);
    message.add(header_of(0x10000)).text(TCA_KIND, "mercury");
    message.nest(TCA_OPTIONS, [](Message& options) {
        options.attribute(TCA_MERCURY_JOBS, std::uint32_t{2});
        options.attribute(TCA_MERCURY_KEY, std::uint8_t{1});
        options.attribute(TCA_MERCURY_RATE, std::uint64_t{1} << 33);
        options.attribute(TCA_MERCURY_CE_THRESHOLD, MERCURY_TIME_NONE);
        options.nest(TCA_MERCURY_DEADLINES, [](Message& deadlines) {
            deadlines.attribute(TCA_MERCURY_DEADLINE,
                                mercury_deadline{MERCURY_EVERY_JOB, 1, 2, 0, 5000});
            deadlines.attribute(TCA_MERCURY_DEADLINE,
                                mercury_deadline{1, 7, 7, 0, MERCURY_TIME_NONE});
        });
    });
    add_statistics(message, true);
    return message.bytes();
}

std::vector<std::byte> full_class() {
    Message message(RTM_NEWTCLASS, NLM_F_MULTI, 6);
    message.add(header_of(0x10405)).text(TCA_KIND, "mercury");
    message.nest(TCA_OPTIONS, [](Message& options) {
        options.attribute(TCA_MERCURY_CLASS_JOB, std::uint32_t{1});
        options.attribute(TCA_MERCURY_CLASS_BAND, std::uint32_t{4});
        options.attribute(TCA_MERCURY_CLASS_LIMIT, std::uint32_t{0});
        options.attribute(TCA_MERCURY_CLASS_DEADLINE, std::uint64_t{100'000'000});
    });
    add_statistics(message, false);
    return message.bytes();
}

}  // namespace mercury::netlink::test
