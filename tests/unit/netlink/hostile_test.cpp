// SPDX-License-Identifier: MIT
//
// Bytes that no kernel sends: an error or nothing, and under the sanitizers no word from them.
#include <cstring>
#include <random>

#include <linux/rtnetlink.h>

#include <catch2/catch.hpp>

#include "messages.hpp"
#include "netlink/message.hpp"

using namespace mercury::netlink;

namespace {

using Bytes = std::vector<std::byte>;

/// All that the library reads, one message each.
std::vector<Bytes> samples() {
    const nlmsghdr request{};
    return {
        test::full_qdisc(),
        test::full_class(),
        test::Message(RTM_NEWLINK, 0, 1)
            .add(ifinfomsg{})
            .text(IFLA_IFNAME, "eth0")
            .nest(IFLA_LINKINFO, [](auto& info) { info.text(IFLA_INFO_KIND, "veth"); })
            .bytes(),
        test::Message(NLMSG_ERROR, NLM_F_ACK_TLVS | NLM_F_CAPPED, 1)
            .add(-22)
            .add(request)
            .text(NLMSGERR_ATTR_MSG, "because")
            .bytes(),
        test::Message(NLMSG_DONE, NLM_F_ACK_TLVS, 1)
            .add(-22)
            .text(NLMSGERR_ATTR_MSG, "because")
            .bytes(),
    };
}

void set_length(Bytes& message, std::size_t length) {
    const auto value = static_cast<std::uint32_t>(length);
    std::memcpy(message.data(), &value, sizeof(value));
}

/// In memory of just that size, so that a read beyond it is seen.
Bytes first(const Bytes& message, std::size_t size) {
    return {message.begin(), message.begin() + static_cast<std::ptrdiff_t>(size)};
}

}  // namespace

TEST_CASE("a datagram that is cut off anywhere is an error") {
    for (const Bytes& sample : samples()) {
        for (std::size_t size = 1; size < sample.size(); ++size) {
            INFO(size << " of " << sample.size());
            CHECK_FALSE(decode(first(sample, size)));
        }
    }
}

TEST_CASE("a message that ends within an attribute is an error") {
    for (const Bytes& sample : samples()) {
        std::size_t good = 0;  // ends between two attributes
        for (std::size_t size = sizeof(nlmsghdr); size < sample.size(); ++size) {
            Bytes message = first(sample, size);
            set_length(message, size);
            if (decode(message) && size % 4 == 0)  // an end within the padding is one, too
                ++good;
        }
        CHECK(good <= 4);
    }
}

TEST_CASE("nothing is no message") {
    const auto answers = decode({});
    REQUIRE(answers);
    CHECK(answers.value().empty());
}

TEST_CASE("lengths that contradict each other are an error") {
    for (const Bytes& sample : samples()) {
        for (const std::size_t length : {std::size_t{0}, std::size_t{1}, sizeof(nlmsghdr) - 1,
                                         sample.size() + 1, std::size_t{0xffffffff}}) {
            Bytes message = sample;
            set_length(message, length);
            CHECK_FALSE(decode(message));
        }
    }
}

TEST_CASE("the end of a message that is nested too far is an error") {
    // An attribute within an attribute that claims more than that has.
    const auto message = test::Message(RTM_NEWQDISC, 0, 1)
                             .add(tcmsg{})
                             .text(TCA_KIND, "mercury")
                             .nest(TCA_OPTIONS,
                                   [](auto& options) {
                                       nlattr lies{};
                                       lies.nla_type = TCA_MERCURY_JOBS;
                                       lies.nla_len = 64;
                                       options.add(lies);
                                   })
                             .bytes();
    CHECK_FALSE(decode(message));
}

TEST_CASE("random changes of good messages") {
    std::random_device seed;
    std::mt19937 random(seed());
    const auto all = samples();
    for (int i = 0; i < 200'000; ++i) {
        Bytes message = all[random() % all.size()];
        for (auto changes = random() % 4 + 1; changes != 0; --changes)
            message[random() % message.size()] = static_cast<std::byte>(random());
        const auto size = random() % 8 == 0 ? random() % message.size() : message.size();
        static_cast<void>(decode(first(message, size)));
    }
}

TEST_CASE("random bytes") {
    std::random_device seed;
    std::mt19937 random(seed());
    for (int i = 0; i < 200'000; ++i) {
        Bytes message(random() % 200);
        for (std::byte& byte : message)
            byte = static_cast<std::byte>(random() % 4 == 0 ? random() : random() % 32);
        if (message.size() >= sizeof(nlmsghdr) && random() % 4 != 0) {
            const auto type = static_cast<std::uint16_t>(random() % 48);
            set_length(message, message.size());
            std::memcpy(message.data() + offsetof(nlmsghdr, nlmsg_type), &type, sizeof(type));
        }
        static_cast<void>(decode(message));
    }
}
