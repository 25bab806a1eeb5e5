// SPDX-License-Identifier: MIT
#include "netlink.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <linux/gen_stats.h>
#include <linux/if_link.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "mercury.h"

namespace fuzz {
namespace {

constexpr std::size_t max_message = 8192;
constexpr std::size_t receive_size = 1 << 17;
// Longer than any request takes in a debug kernel: then it hangs.
constexpr timeval patience{.tv_sec = 120, .tv_usec = 0};

[[noreturn]] void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

/// Calls the handler for each attribute: libmnl's own loops are no C++.
template <typename Handler>
int call(const nlattr* attr, void* handler) {
    (*static_cast<Handler*>(handler))(attr);
    return MNL_CB_OK;
}

template <typename Handler>
void for_each_nested(const nlattr* nest, Handler handler) {
    mnl_attr_parse_nested(nest, call<Handler>, &handler);
}

template <typename Handler>
void for_each(const nlmsghdr* header, unsigned fixed, Handler handler) {
    mnl_attr_parse(header, fixed, call<Handler>, &handler);
}

/// As much as there is of a struct that has grown over time.
template <typename T>
T read_struct(const nlattr* attr) {
    T value{};
    std::memcpy(&value, mnl_attr_get_payload(attr),
                std::min<std::size_t>(sizeof value, mnl_attr_get_payload_len(attr)));
    return value;
}

void read_mercury(const nlattr* nest, Entry& entry) {
    for_each_nested(nest, [&](const nlattr* attr) {
        if (mnl_attr_get_type(attr) == TCA_MERCURY_STATS_MEMORY) {
            entry.memory = mnl_attr_get_u64(attr);
        } else if (mnl_attr_get_type(attr) == TCA_MERCURY_STATS_ACTIVE_JOBS) {
            entry.active_jobs = mnl_attr_get_u32(attr);
        }
    });
}

void read_statistics(const nlattr* nest, Entry& entry) {
    for_each_nested(nest, [&](const nlattr* attr) {
        const std::uint16_t type = mnl_attr_get_type(attr);
        if (type == TCA_STATS_BASIC) {
            const auto basic = read_struct<gnet_stats_basic>(attr);
            entry.bytes = basic.bytes;
            entry.packets = basic.packets;
        } else if (type == TCA_STATS_QUEUE) {
            const auto queue = read_struct<gnet_stats_queue>(attr);
            entry.qlen = queue.qlen;
            entry.backlog = queue.backlog;
            entry.drops = queue.drops;
        } else if (type == TCA_STATS_APP && entry.kind == MERCURY_KIND) {
            read_mercury(attr, entry);
        }
    });
}

Entry read_entry(const nlmsghdr* header) {
    const auto* traffic = static_cast<const tcmsg*>(mnl_nlmsg_get_payload(header));
    Entry entry{.handle = traffic->tcm_handle, .parent = traffic->tcm_parent};
    for_each(header, sizeof(tcmsg), [&](const nlattr* attr) {
        if (mnl_attr_get_type(attr) == TCA_KIND) {
            entry.kind = mnl_attr_get_str(attr);
        } else if (mnl_attr_get_type(attr) == TCA_STATS2) {
            read_statistics(attr, entry);
        }
    });
    return entry;
}

}  // namespace

// --- messages --------------------------------------------------------------------

Message::Message(std::uint16_t type, std::uint16_t flags)
    : buffer_(max_message), header_(mnl_nlmsg_put_header(buffer_.data())) {
    header_->nlmsg_type = type;
    header_->nlmsg_flags = static_cast<std::uint16_t>(flags | NLM_F_REQUEST);
}

Message& Message::traffic(int ifindex, std::uint32_t handle, std::uint32_t parent,
                          std::uint32_t info) {
    auto* traffic = static_cast<tcmsg*>(mnl_nlmsg_put_extra_header(header_, sizeof(tcmsg)));
    traffic->tcm_ifindex = ifindex;
    traffic->tcm_handle = handle;
    traffic->tcm_parent = parent;
    traffic->tcm_info = info;
    fixed_ = sizeof(tcmsg);
    return *this;
}

Message& Message::link(int ifindex, bool up) {
    auto* link = static_cast<ifinfomsg*>(mnl_nlmsg_put_extra_header(header_, sizeof(ifinfomsg)));
    link->ifi_index = ifindex;
    link->ifi_flags = up ? IFF_UP : 0;
    link->ifi_change = IFF_UP;
    fixed_ = sizeof(ifinfomsg);
    return *this;
}

Message& Message::put(std::uint16_t type, std::span<const std::byte> data) {
    mnl_attr_put(header_, type, data.size(), data.data());
    return *this;
}

Message& Message::put(std::uint16_t type, const std::string& text) {
    mnl_attr_put_strz(header_, type, text.c_str());
    return *this;
}

Message& Message::number(std::uint16_t type, std::size_t size, std::uint64_t value) {
    std::array<std::byte, 16> bytes{};
    std::memcpy(bytes.data(), &value, sizeof value);
    return put(type, std::span(bytes).first(size));
}

Message& Message::begin(std::uint16_t type) {
    open_.push_back(mnl_attr_nest_start(header_, type));
    return *this;
}

Message& Message::end() {
    mnl_attr_nest_end(header_, open_.back());
    open_.pop_back();
    return *this;
}

std::span<std::byte> Message::attributes() {
    auto* start = static_cast<std::byte*>(mnl_nlmsg_get_payload_offset(header_, fixed_));
    return {start, static_cast<std::byte*>(mnl_nlmsg_get_payload_tail(header_))};
}

// --- the socket --------------------------------------------------------------------

Route::Route() : socket_(mnl_socket_open(NETLINK_ROUTE)) {
    if (!socket_ || mnl_socket_bind(socket_.get(), 0, MNL_SOCKET_AUTOPID) < 0) {
        fail("a netlink socket cannot be opened");
    }
    port_ = mnl_socket_get_portid(socket_.get());
    const int fd = mnl_socket_get_fd(socket_.get());
    const int size = 8 << 20;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
}

/// Sends a request and gives every message of the answer to the handler; 0 or an errno.
template <typename Handler>
int Route::exchange(nlmsghdr* header, Handler handler) {
    header->nlmsg_seq = ++sequence_;
    if (mnl_socket_sendto(socket_.get(), header, header->nlmsg_len) < 0) {
        return errno;
    }
    const mnl_cb_t collect = [](const nlmsghdr* answer, void* data) {
        (*static_cast<Handler*>(data))(answer);
        return MNL_CB_OK;
    };
    std::vector<char> buffer(receive_size);
    while (true) {
        const ssize_t size = mnl_socket_recvfrom(socket_.get(), buffer.data(), buffer.size());
        if (size < 0) {
            fail("the kernel gives no answer");
        }
        const int more = mnl_cb_run(buffer.data(), static_cast<std::size_t>(size), sequence_, port_,
                                    collect, &handler);
        if (more < 0) {
            return errno;
        }
        if (more == MNL_CB_STOP) {
            return 0;
        }
    }
}

int Route::request(Message& message) {
    message.header()->nlmsg_flags |= NLM_F_ACK;
    return exchange(message.header(), [](const nlmsghdr*) {});
}

std::vector<Entry> Route::dump(std::uint16_t type, int ifindex, std::uint32_t parent) {
    Message message(type, NLM_F_DUMP);
    message.traffic(ifindex, 0, parent).put(TCA_DUMP_INVISIBLE, std::span<const std::byte>());
    std::vector<Entry> found;
    const int error = exchange(message.header(), [&](const nlmsghdr* header) {
        const auto* traffic = static_cast<const tcmsg*>(mnl_nlmsg_get_payload(header));
        if (traffic->tcm_ifindex == ifindex) {
            found.push_back(read_entry(header));
        }
    });
    // Interrupted: something was announced meanwhile. What is seen is compared anyway.
    if (error && error != EINTR) {
        throw std::system_error(error, std::generic_category(), "a dump was refused");
    }
    return found;
}

std::vector<Entry> Route::qdiscs(int ifindex) {
    return dump(RTM_GETQDISC, ifindex, 0);
}

std::vector<Entry> Route::classes(int ifindex, std::uint32_t qdisc) {
    return dump(RTM_GETTCLASS, ifindex, qdisc);
}

}  // namespace fuzz
