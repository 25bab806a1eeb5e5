// SPDX-License-Identifier: MIT
#include "netlink/message.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <libmnl/libmnl.h>
#include <linux/gen_stats.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include "netlink/options.hpp"

namespace mercury::netlink {
namespace {

// Requests --------------------------------------------------------------------------------------

/// Room for the largest request, whose deadlines are most of it.
constexpr std::size_t request_bytes_max = 4096;
static_assert(MERCURY_DEADLINES_MAX * (sizeof(nlattr) + sizeof(mercury_deadline)) <
              request_bytes_max / 2);

class Request {
  public:
    Request(std::uint16_t type, std::uint16_t flags, Sequence sequence)
        : header_(mnl_nlmsg_put_header(buffer_.data())) {
        header_->nlmsg_type = type;
        header_->nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
        header_->nlmsg_seq = sequence;
    }
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;
    ~Request() = default;

    template <typename T>
    T& family_header() {
        return *static_cast<T*>(mnl_nlmsg_put_extra_header(header_, sizeof(T)));
    }

    void put(std::uint16_t type, const std::string& text) {
        mnl_attr_put_strz(header_, type, text.c_str());
    }
    template <typename T>
    void put(std::uint16_t type, T value) requires std::is_trivially_copyable_v<T> {
        mnl_attr_put(header_, type, sizeof(value), &value);
    }

    template <typename Fill>
    void nest(std::uint16_t type, Fill fill) {
        nlattr* const start = mnl_attr_nest_start(header_, type);
        fill();
        mnl_attr_nest_end(header_, start);
    }

    Datagram bytes() const { return {buffer_.begin(), buffer_.begin() + header_->nlmsg_len}; }

  private:
    alignas(nlmsghdr) std::array<std::byte, request_bytes_max> buffer_{};
    nlmsghdr* header_;
};

struct Kind {
    std::uint16_t type;
    std::uint16_t flags;
};

Kind kind_of(Verb verb) {
    switch (verb) {
        case Verb::Add:
            return {RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL};
        case Verb::Replace:
            return {RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE};
        case Verb::Change:
            return {RTM_NEWQDISC, 0};
        case Verb::Delete:
            break;
    }
    return {RTM_DELQDISC, 0};
}

/// Puts each option that is set.
auto putter(Request& message) {
    return [&message](const Option& option, const auto& field) {
        if (field)
            message.put(option.attribute, *field);
    };
}

void put_deadlines(Request& message, const std::vector<Deadline>& deadlines) {
    message.nest(TCA_MERCURY_DEADLINES, [&] {
        for (const Deadline& deadline : deadlines) {
            mercury_deadline entry{};
            entry.job = deadline.job.value_or(MERCURY_EVERY_JOB);
            entry.first = deadline.first;
            entry.last = deadline.last;
            entry.time = deadline.time.count();
            message.put(TCA_MERCURY_DEADLINE, entry);
        }
    });
}

// Answers ---------------------------------------------------------------------------------------

using Span = std::span<const std::byte>;

/// The start of BYTES as a T; a copy, since nothing says that they are aligned.
template <typename T>
std::optional<T> read(Span bytes) {
    T value;
    if (bytes.size() < sizeof(value))
        return {};
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
}

/// What follows SIZE bytes and their padding.
Span after(Span bytes, std::size_t size) {
    return bytes.subspan(std::min(bytes.size(), (size + 3) & ~std::size_t{3}));
}

/// Calls VISIT(type, payload) for each attribute; it returns false if the payload is malformed, and
/// so does this.
template <typename Visit>
bool for_each_attribute(Span bytes, Visit visit) {
    while (!bytes.empty()) {
        const auto header = read<nlattr>(bytes);
        if (!header || header->nla_len < sizeof(*header) || header->nla_len > bytes.size())
            return false;
        const Span payload = bytes.first(header->nla_len).subspan(sizeof(*header));
        if (!visit(static_cast<std::uint16_t>(header->nla_type & NLA_TYPE_MASK), payload))
            return false;
        bytes = after(bytes, header->nla_len);
    }
    return true;
}

/// An unsigned number of any width, so that one may be widened later.
std::optional<std::uint64_t> read_number(Span payload) {
    switch (payload.size()) {
        case sizeof(std::uint8_t):
            return read<std::uint8_t>(payload);
        case sizeof(std::uint32_t):
            return read<std::uint32_t>(payload);
        case sizeof(std::uint64_t):
            return read<std::uint64_t>(payload);
        default:
            return {};
    }
}

void set(std::optional<Time>& field, std::uint64_t value) {
    field = Time{value};
}

template <typename T>
void set(std::optional<T>& field, std::uint64_t value) {
    if (value <= std::numeric_limits<T>::max())
        field = static_cast<T>(value);
}

/// Sets the field whose attribute is TYPE, in any of the lists of options.hpp.
auto setter(std::uint16_t type, Span payload) {
    return [type, value = read_number(payload)](const auto& description, auto& field) {
        if (value && description.attribute == type)
            set(field, *value);
    };
}

std::string read_text(Span payload) {
    const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
    return std::string(text.substr(0, text.find('\0')));
}

bool read_deadlines(Span payload, std::vector<Deadline>& deadlines) {
    return for_each_attribute(payload, [&](std::uint16_t type, Span entry) {
        const auto deadline = read<mercury_deadline>(entry);
        if (type != TCA_MERCURY_DEADLINE || !deadline)
            return true;
        deadlines.push_back({{}, deadline->first, deadline->last, Time{deadline->time}});
        if (deadline->job != MERCURY_EVERY_JOB)
            deadlines.back().job = deadline->job;
        return true;
    });
}

bool read_options(Span payload, MercuryOptions& options) {
    return for_each_attribute(payload, [&](std::uint16_t type, Span value) {
        if (type == TCA_MERCURY_DEADLINES)
            return read_deadlines(value, options.deadlines.emplace());
        for_each_option(options, setter(type, value));
        return true;
    });
}

bool read_options(Span payload, ClassOptions& options) {
    return for_each_attribute(payload, [&](std::uint16_t type, Span value) {
        const auto number = read_number(value);
        if (type == TCA_MERCURY_CLASS_JOB && number)
            set(options.job, *number);
        if (type == TCA_MERCURY_CLASS_BAND && number)
            set(options.band, *number);
        for_each_class_option(options, setter(type, value));
        return true;
    });
}

bool read_mercury(Span payload, MercuryStatistics& statistics) {
    return for_each_attribute(payload, [&](std::uint16_t type, Span value) {
        if (type == TCA_MERCURY_STATS_SOJOURN) {
            statistics.sojourn.resize(value.size() / sizeof(std::uint64_t));
            if (!statistics.sojourn.empty()) {
                std::memcpy(statistics.sojourn.data(), value.data(),
                            statistics.sojourn.size() * sizeof(std::uint64_t));
            }
        }
        for_each_counter(statistics, setter(type, value));
        return true;
    });
}

void read_queue(Span payload, Statistics& statistics) {
    const auto queue = read<gnet_stats_queue>(payload);
    if (!queue)
        return;
    statistics.qlen = queue->qlen;
    statistics.backlog = queue->backlog;
    statistics.drops = queue->drops;
    statistics.requeues = queue->requeues;
    statistics.overlimits = queue->overlimits;
}

/// struct gnet_stats_basic ends with padding that a kernel need not send.
void read_basic(Span payload, Statistics& statistics) {
    const auto bytes = read<std::uint64_t>(payload);
    const auto packets = read<std::uint32_t>(after(payload, offsetof(gnet_stats_basic, packets)));
    if (!bytes || !packets)
        return;
    statistics.bytes = *bytes;
    statistics.packets = *packets;
}

/// TCA_STATS2. What an application counts goes to APPLICATION.
bool read_statistics(Span payload, Statistics& statistics, Span& application) {
    std::optional<std::uint64_t> packets;  // if they do not fit 32 bits
    const bool good = for_each_attribute(payload, [&](std::uint16_t type, Span value) {
        if (type == TCA_STATS_BASIC)
            read_basic(value, statistics);
        else if (type == TCA_STATS_PKT64)
            packets = read_number(value);
        else if (type == TCA_STATS_QUEUE)
            read_queue(value, statistics);
        else if (type == TCA_STATS_APP)
            application = value;
        return true;
    });
    statistics.packets = packets.value_or(statistics.packets);
    return good;
}

/// What qdiscs and classes have in common. OBJECT is one of them.
template <typename Options, typename Object>
bool read_traffic_control(Span payload, Object& object) {
    Span options;
    Span application;
    const bool good = for_each_attribute(payload, [&](std::uint16_t type, Span value) {
        if (type == TCA_KIND)
            object.kind = read_text(value);
        else if (type == TCA_OPTIONS)
            options = value;
        else if (type == TCA_STATS2)
            return read_statistics(value, object.statistics, application);
        return true;
    });
    if (!good || object.kind != MERCURY_KIND)
        return good;
    return read_options(options, object.options.emplace()) &&
           read_mercury(application, object.mercury.emplace());
}

std::optional<Qdisc> read_qdisc(Span payload) {
    const auto header = read<tcmsg>(payload);
    if (!header)
        return {};
    Qdisc qdisc;
    qdisc.ifindex = header->tcm_ifindex;
    qdisc.handle = {header->tcm_handle};
    qdisc.parent = {header->tcm_parent};
    if (!read_traffic_control<MercuryOptions>(after(payload, sizeof(*header)), qdisc))
        return {};
    return qdisc;
}

std::optional<Class> read_class(Span payload) {
    const auto header = read<tcmsg>(payload);
    if (!header)
        return {};
    Class one;
    one.ifindex = header->tcm_ifindex;
    one.classid = {header->tcm_handle};
    one.parent = {header->tcm_parent};
    one.leaf = {header->tcm_info};
    if (!read_traffic_control<ClassOptions>(after(payload, sizeof(*header)), one))
        return {};
    return one;
}

bool read_kind(Span payload, Link& link) {
    return for_each_attribute(payload, [&](std::uint16_t type, Span value) {
        if (type == IFLA_INFO_KIND)
            link.kind = read_text(value);
        return true;
    });
}

std::optional<Link> read_link(Span payload) {
    const auto header = read<ifinfomsg>(payload);
    if (!header)
        return {};
    Link link;
    link.index = header->ifi_index;
    link.up = (header->ifi_flags & IFF_UP) != 0;
    link.loopback = (header->ifi_flags & IFF_LOOPBACK) != 0;
    const bool good =
        for_each_attribute(after(payload, sizeof(*header)), [&](std::uint16_t type, Span value) {
            const auto number = static_cast<std::uint32_t>(read_number(value).value_or(0));
            if (type == IFLA_IFNAME)
                link.name = read_text(value);
            else if (type == IFLA_MTU)
                link.mtu = number;
            else if (type == IFLA_NUM_TX_QUEUES)
                link.tx_queues = number;
            else if (type == IFLA_LINKINFO)
                return read_kind(value, link);
            return true;
        });
    return good ? std::optional(link) : std::nullopt;
}

/// NLMSG_ERROR, and NLMSG_DONE, which does not name the request that it is about.
std::optional<End> read_end(const nlmsghdr& header, Span payload) {
    const auto code = read<std::int32_t>(payload);
    if (!code)
        return {};
    Span attributes = after(payload, sizeof(*code));
    if (header.nlmsg_type == NLMSG_ERROR) {
        const auto request = read<nlmsghdr>(attributes);
        if (!request)
            return {};
        const bool capped = (header.nlmsg_flags & NLM_F_CAPPED) != 0;
        attributes = after(attributes, capped ? sizeof(*request) : request->nlmsg_len);
    }
    std::string sentence;
    if ((header.nlmsg_flags & NLM_F_ACK_TLVS) != 0 &&
        !for_each_attribute(attributes, [&](std::uint16_t type, Span value) {
            if (type == NLMSGERR_ATTR_MSG)
                sentence = read_text(value);
            return true;
        }))
        return {};
    if (*code >= 0)
        return End{};
    if (sentence.empty())
        sentence = std::generic_category().message(
            static_cast<int>(0U - static_cast<std::uint32_t>(*code)));  // also of INT_MIN
    return End{Error{std::move(sentence)}};
}

/// Moves what READ has made of a message to ANSWER; false if it could make nothing of it.
template <typename T>
bool put(std::optional<T> object, bool gone, Answer& answer) {
    if (object)
        answer.body = Changed<T>{std::move(*object), gone};
    return object.has_value();
}

enum class Outcome : std::uint8_t { Good, Malformed, NotOurs };

Outcome outcome(bool good) {
    return good ? Outcome::Good : Outcome::Malformed;
}

Outcome read_message(const nlmsghdr& header, Span payload, Answer& answer) {
    answer.sequence = header.nlmsg_seq;
    answer.interrupted = (header.nlmsg_flags & NLM_F_DUMP_INTR) != 0;
    switch (header.nlmsg_type) {
        case NLMSG_ERROR:
        case NLMSG_DONE: {
            auto end = read_end(header, payload);
            if (end)
                answer.body = std::move(*end);
            return outcome(end.has_value());
        }
        case RTM_NEWLINK:
        case RTM_DELLINK:
            // A bridge tells of its ports in the same words: those are not gone.
            if (!payload.empty() && payload.front() != std::byte{AF_UNSPEC})
                return Outcome::NotOurs;
            return outcome(put(read_link(payload), header.nlmsg_type == RTM_DELLINK, answer));
        case RTM_NEWQDISC:
        case RTM_DELQDISC:
            return outcome(put(read_qdisc(payload), header.nlmsg_type == RTM_DELQDISC, answer));
        case RTM_NEWTCLASS:
        case RTM_DELTCLASS:
            return outcome(put(read_class(payload), header.nlmsg_type == RTM_DELTCLASS, answer));
        default:
            return Outcome::NotOurs;
    }
}

}  // namespace

Datagram encode_get_links(Sequence sequence) {
    Request message(RTM_GETLINK, NLM_F_DUMP, sequence);
    message.family_header<ifinfomsg>();
    message.put(IFLA_EXT_MASK, std::uint32_t{RTEXT_FILTER_SKIP_STATS});
    return message.bytes();
}

Datagram encode_get_qdiscs(Sequence sequence) {
    Request message(RTM_GETQDISC, NLM_F_DUMP, sequence);
    message.family_header<tcmsg>();
    return message.bytes();
}

Datagram encode_get_classes(Sequence sequence, int ifindex, Handle qdisc) {
    Request message(RTM_GETTCLASS, NLM_F_DUMP, sequence);
    auto& header = message.family_header<tcmsg>();
    header.tcm_ifindex = ifindex;
    header.tcm_parent = qdisc.value;
    return message.bytes();
}

Result<Datagram> encode(Sequence sequence, const QdiscRequest& request) {
    const auto& deadlines = request.options.deadlines;
    if (deadlines && deadlines->size() > MERCURY_DEADLINES_MAX) {
        return Error{fmt::format("{} deadlines are too many for one request, which takes {}",
                                 deadlines->size(), MERCURY_DEADLINES_MAX)};
    }
    if (request.kind.empty() || request.kind.size() >= IFNAMSIZ) {
        return Error{fmt::format("a kind of qdisc has 1 to {} letters, not \"{}\"", IFNAMSIZ - 1,
                                 request.kind)};
    }
    const auto [type, flags] = kind_of(request.verb);
    Request message(type, static_cast<std::uint16_t>(NLM_F_ACK | flags), sequence);
    auto& header = message.family_header<tcmsg>();
    header.tcm_ifindex = request.ifindex;
    header.tcm_handle = request.handle.value;
    header.tcm_parent = request.parent.value;
    if (request.verb == Verb::Delete)
        return message.bytes();
    message.put(TCA_KIND, request.kind);
    if (request.kind == MERCURY_KIND) {
        message.nest(TCA_OPTIONS, [&] {
            for_each_option(request.options, putter(message));
            if (deadlines)
                put_deadlines(message, *deadlines);
        });
    }
    return message.bytes();
}

Datagram encode(Sequence sequence, const ClassRequest& request) {
    // To create, so that the module says itself that there is no such class.
    Request message(RTM_NEWTCLASS, NLM_F_ACK | NLM_F_CREATE, sequence);
    auto& header = message.family_header<tcmsg>();
    header.tcm_ifindex = request.ifindex;
    header.tcm_handle = request.classid.value;
    message.put(TCA_KIND, std::string(MERCURY_KIND));
    message.nest(TCA_OPTIONS, [&] { for_each_class_option(request.options, putter(message)); });
    return message.bytes();
}

Result<std::vector<Answer>> decode(std::span<const std::byte> datagram) {
    std::vector<Answer> answers;
    while (!datagram.empty()) {
        const auto header = read<nlmsghdr>(datagram);
        if (!header || header->nlmsg_len < sizeof(*header) || header->nlmsg_len > datagram.size())
            return Error{"the kernel's netlink message is cut off"};
        const Span payload = datagram.first(header->nlmsg_len).subspan(sizeof(*header));
        Answer answer;
        const Outcome read = read_message(*header, payload, answer);
        if (read == Outcome::Malformed) {
            return Error{
                fmt::format("the kernel's netlink message of type {} has attributes that do not "
                            "fit into it",
                            header->nlmsg_type)};
        }
        if (read == Outcome::Good)
            answers.push_back(std::move(answer));
        datagram = after(datagram, header->nlmsg_len);
    }
    return answers;
}

}  // namespace mercury::netlink
