// SPDX-License-Identifier: MIT
#include "netlink/message.hpp"

#include <cerrno>
#include <climits>
#include <cstring>
#include <random>

#include <linux/gen_stats.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "messages.hpp"
#include "netlink/options.hpp"

using namespace mercury;
using namespace mercury::netlink;
using mercury::netlink::test::Message;

namespace {

template <typename T>
T only(const std::vector<std::byte>& datagram) {
    const auto answers = decode(datagram);
    REQUIRE(answers);
    REQUIRE(answers.value().size() == 1);
    const T* const body = std::get_if<T>(&answers.value()[0].body);
    REQUIRE(body != nullptr);
    return *body;
}

std::string error_of(const std::vector<std::byte>& datagram) {
    const auto end = only<End>(datagram);
    return end.error ? end.error->message : "";
}

template <typename T>
T at(const std::vector<std::byte>& bytes, std::size_t offset) {
    T value;
    REQUIRE(bytes.size() >= offset + sizeof(value));
    std::memcpy(&value, bytes.data() + offset, sizeof(value));
    return value;
}

/// What the kernel sends for a request that it does not accept.
Message refusal(int code, std::uint16_t flags) {
    Message message(NLMSG_ERROR, flags, 9);
    message.add(std::int32_t{code});
    return message;
}

nlmsghdr request_header(std::uint32_t length) {
    nlmsghdr header{};
    header.nlmsg_len = length;
    return header;
}

MercuryOptions random_options(std::mt19937& random) {
    MercuryOptions options;
    for_each_option(options, [&](const Option&, auto& field) {
        using Value = typename std::decay_t<decltype(field)>::value_type;
        if (random() % 3 != 0)
            field = Value(static_cast<std::uint64_t>(random()) << 32 | random());
    });
    if (random() % 3 == 0)
        return options;
    options.deadlines.emplace(random() % (MERCURY_DEADLINES_MAX + 1));
    for (Deadline& one : *options.deadlines) {
        one = {{},
               static_cast<std::uint16_t>(random()),
               static_cast<std::uint16_t>(random()),
               Time{random()}};
        if (random() % 2 == 0)
            one.job = static_cast<std::uint16_t>(random() % MERCURY_EVERY_JOB);
    }
    return options;
}

}  // namespace

TEST_CASE("a qdisc with all that it may have") {
    const auto changed = only<Changed<Qdisc>>(test::full_qdisc());
    CHECK_FALSE(changed.gone);
    const Qdisc& qdisc = changed.now;
    CHECK(qdisc.ifindex == 3);
    CHECK(qdisc.kind == "mercury");
    CHECK(to_string(qdisc.handle) == "1:");
    CHECK(qdisc.parent == root);
    CHECK(qdisc.statistics == Statistics{123456, 0x1'0000'004d, 7, 9, 8, 6, 5});
    REQUIRE(qdisc.options);
    CHECK(qdisc.options->jobs == 2U);
    CHECK(qdisc.options->key == MERCURY_KEY_PRIORITY);
    CHECK(qdisc.options->rate == std::uint64_t{1} << 33);
    CHECK(qdisc.options->ce_threshold == no_time);
    CHECK_FALSE(qdisc.options->bands);
    CHECK(qdisc.options->deadlines ==
          std::vector<Deadline>{{{}, 1, 2, Time{5000}}, {1, 7, 7, no_time}});
    REQUIRE(qdisc.mercury);
    for_each_counter(*qdisc.mercury, [](const Counter& counter, const auto& field) {
        REQUIRE(field);
        const unsigned shift = counter.attribute == TCA_MERCURY_STATS_ACTIVE_JOBS ? 0 : 33;
        CHECK(number_of(*field) == std::uint64_t{counter.attribute} << shift);
    });
}

TEST_CASE("a class with all that it may have") {
    const Class one = only<Changed<Class>>(test::full_class()).now;
    CHECK(to_string(one.classid) == "1:405");
    CHECK(one.parent == root);
    CHECK(to_string(one.leaf) == "8001:");
    REQUIRE(one.options);
    CHECK(one.options == ClassOptions{1, 4, {}, Time{100'000'000}, 0});
    REQUIRE(one.mercury);
    CHECK(one.mercury->sojourn == std::vector<std::uint64_t>{1, 2, 3, 4});
}

TEST_CASE("of other kinds only the common part is read") {
    Message message(RTM_NEWQDISC, 0, 1);
    message.add(tcmsg{}).text(TCA_KIND, "fq_codel");
    message.nest(TCA_OPTIONS,
                 [](Message& options) { options.attribute(TCA_MERCURY_JOBS, std::uint32_t{2}); });
    const Qdisc qdisc = only<Changed<Qdisc>>(message.bytes()).now;
    CHECK(qdisc.kind == "fq_codel");
    CHECK_FALSE(qdisc.options);
    CHECK_FALSE(qdisc.mercury);
}

TEST_CASE("what a newer module adds or widens is passed over or read") {
    Message message(RTM_NEWQDISC, 0, 1);
    message.add(tcmsg{}).text(TCA_KIND, "mercury").attribute(500, std::uint64_t{1});
    message.nest(TCA_OPTIONS, [](Message& options) {
        options.attribute(TCA_MERCURY_JOBS, std::uint64_t{3});         // wider
        options.attribute(TCA_MERCURY_BANDS, std::uint64_t{1} << 32);  // does not fit
        options.attribute(TCA_MERCURY_RATE, std::uint32_t{1000});      // narrower
        options.attribute(TCA_MERCURY_LIMIT, "seven..", 7);            // not a number
        options.attribute(TCA_MERCURY_MAX + 1, std::uint32_t{1});      // unknown
        options.nest(TCA_MERCURY_DEADLINES, [](Message& deadlines) {
            deadlines.attribute(TCA_MERCURY_DEADLINE_MAX + 1, std::uint32_t{1});
            deadlines.attribute(TCA_MERCURY_DEADLINE, std::uint32_t{1});  // short
            struct {
                mercury_deadline known;
                std::uint64_t more;
            } longer{{MERCURY_EVERY_JOB, 1, 1, 0, 7}, 1};
            deadlines.attribute(TCA_MERCURY_DEADLINE, longer);
        });
    });
    const Qdisc qdisc = only<Changed<Qdisc>>(message.bytes()).now;
    MercuryOptions expected;
    expected.jobs = 3;
    expected.rate = 1000;
    expected.deadlines = {{{}, 1, 1, Time{7}}};
    CHECK(qdisc.options == expected);
}

TEST_CASE("links; a bridge's word about its ports is not about links") {
    ifinfomsg header{};
    header.ifi_index = 4;
    header.ifi_flags = IFF_UP;
    Message message(RTM_NEWLINK, 0, 1);
    message.add(header).text(IFLA_IFNAME, "eth0").attribute(IFLA_MTU, std::uint32_t{9000});
    message.attribute(IFLA_NUM_TX_QUEUES, std::uint32_t{8});
    message.nest(IFLA_LINKINFO, [](Message& info) { info.text(IFLA_INFO_KIND, "veth"); });
    CHECK(only<Changed<Link>>(message.bytes()).now ==
          Link{4, "eth0", "veth", true, false, 9000, 8});

    header.ifi_family = AF_BRIDGE;
    const auto of_bridge = decode(Message(RTM_DELLINK, 0, 0).add(header).bytes());
    REQUIRE(of_bridge);
    CHECK(of_bridge.value().empty());
}

TEST_CASE("several messages in one datagram, and what is gone") {
    auto datagram = test::full_qdisc();
    const auto gone = Message(RTM_DELQDISC, 0, 0).add(tcmsg{}).text(TCA_KIND, "mq").bytes();
    const auto other = Message(RTM_NEWTFILTER, 0, 0).add(tcmsg{}).bytes();
    const auto done = Message(NLMSG_DONE, NLM_F_MULTI | NLM_F_DUMP_INTR, 5).add(0).bytes();
    for (const auto& more : {other, gone, done})
        datagram.insert(datagram.end(), more.begin(), more.end());
    const auto answers = decode(datagram);
    REQUIRE(answers);
    REQUIRE(answers.value().size() == 3);
    CHECK(answers.value()[0].sequence == 5);
    CHECK_FALSE(answers.value()[0].interrupted);
    CHECK(std::get<Changed<Qdisc>>(answers.value()[1].body).gone);
    CHECK_FALSE(std::get<End>(answers.value()[2].body).error);
    CHECK(answers.value()[2].interrupted);
}

TEST_CASE("the kernel's reason is its sentence, or else that of its errno") {
    CHECK(error_of(refusal(0, 0).add(request_header(16)).bytes()).empty());
    CHECK(error_of(refusal(-EPERM, 0).add(request_header(16)).bytes()) ==
          "Operation not permitted");
    // With the request in it, or only the request's header.
    CHECK(error_of(refusal(-EINVAL, NLM_F_ACK_TLVS)
                       .add(request_header(24))
                       .add(std::uint64_t{0})
                       .text(NLMSGERR_ATTR_MSG, "jobs must be 1 to 62")
                       .bytes()) == "jobs must be 1 to 62");
    CHECK(error_of(refusal(-EINVAL, NLM_F_ACK_TLVS | NLM_F_CAPPED)
                       .add(request_header(24))
                       .text(NLMSGERR_ATTR_MSG, "jobs must be 1 to 62")
                       .attribute(NLMSGERR_ATTR_OFFS, std::uint32_t{7})
                       .bytes()) == "jobs must be 1 to 62");
    // A warning is no error.
    CHECK(error_of(refusal(0, NLM_F_ACK_TLVS | NLM_F_CAPPED)
                       .add(request_header(24))
                       .text(NLMSGERR_ATTR_MSG, "quantum of class is big")
                       .bytes())
              .empty());
    CHECK(error_of(Message(NLMSG_DONE, NLM_F_MULTI, 1).add(std::int32_t{-ENOENT}).bytes()) ==
          "No such file or directory");
    CHECK_FALSE(error_of(refusal(INT_MIN, 0).add(request_header(16)).bytes()).empty());
}

TEST_CASE("a request comes back as it was sent") {
    std::random_device seed;
    std::mt19937 random(seed());
    for (int i = 0; i < 500; ++i) {
        QdiscRequest request;
        request.ifindex = 7;
        request.handle = {0x10000};
        request.options = random_options(random);
        const auto bytes = encode(3, request);
        REQUIRE(bytes);
        const Qdisc back = only<Changed<Qdisc>>(bytes.value()).now;
        CHECK(back.ifindex == 7);
        CHECK(back.parent == root);
        CHECK(back.handle == request.handle);
        CHECK(back.options == request.options);
    }
}

TEST_CASE("flags say whether there must be one already") {
    const auto flags = [](Verb verb) {
        const auto bytes = encode(3, QdiscRequest{.verb = verb, .ifindex = 1});
        REQUIRE(bytes);
        const auto header = at<nlmsghdr>(bytes.value(), 0);
        CHECK(header.nlmsg_len == bytes.value().size());
        CHECK(header.nlmsg_seq == 3);
        CHECK(header.nlmsg_type == (verb == Verb::Delete ? RTM_DELQDISC : RTM_NEWQDISC));
        return header.nlmsg_flags;
    };
    constexpr int always = NLM_F_REQUEST | NLM_F_ACK;
    CHECK(flags(Verb::Add) == (always | NLM_F_CREATE | NLM_F_EXCL));
    CHECK(flags(Verb::Replace) == (always | NLM_F_CREATE | NLM_F_REPLACE));
    CHECK(flags(Verb::Change) == always);
    CHECK(flags(Verb::Delete) == always);
}

TEST_CASE("options are for mercury only") {
    QdiscRequest request;
    request.kind = "fq_codel";
    request.options.jobs = 3;
    request.options.deadlines.emplace();
    const auto bytes = encode(1, request);
    REQUIRE(bytes);
    // header, tcmsg, TCA_KIND
    CHECK(bytes.value().size() == sizeof(nlmsghdr) + sizeof(tcmsg) + 4 + 12);
}

TEST_CASE("a class is changed by its classid; only what is set is sent") {
    ClassRequest request;
    request.ifindex = 7;
    request.classid = Handle{0x10000}.child(MERCURY_MINOR_JOB(2));
    request.options.weight = 5;
    const auto bytes = encode(4, request);
    const Class back = only<Changed<Class>>(bytes).now;
    CHECK(to_string(back.classid) == "1:fc02");
    CHECK(back.options == ClassOptions{{}, {}, 5, {}, {}});
    CHECK(at<nlmsghdr>(bytes, 0).nlmsg_flags == (NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE));
}

TEST_CASE("what does not fit a request is refused") {
    QdiscRequest request;
    request.options.deadlines.emplace(MERCURY_DEADLINES_MAX + 1);
    CHECK(encode(1, request).error().message ==
          "65 deadlines are too many for one request, which takes 64");
    request.options = {};
    for (const std::string kind : {"", "0123456789abcdef"}) {
        request.kind = kind;
        CHECK(encode(1, request).error().message ==
              "a kind of qdisc has 1 to 15 letters, not \"" + kind + "\"");
    }
}

TEST_CASE("handles as tc writes them") {
    CHECK(to_string(root) == "root");
    CHECK(to_string(ingress) == "ingress");
    CHECK(to_string(Handle{}) == "0:");
    CHECK(to_string(Handle{0x8001fc00}) == "8001:fc00");
    CHECK(Handle{0x8001fc00}.qdisc() == Handle{0x80010000});
    CHECK(Handle{0x10000}.child(MERCURY_MINOR_DEFAULT) == Handle{0x1ffff});
}
