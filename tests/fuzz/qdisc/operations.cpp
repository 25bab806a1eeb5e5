// SPDX-License-Identifier: MIT
#include "operations.hpp"

#include <array>
#include <cstring>

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>

#include "mercury.h"

namespace fuzz {
namespace {

/// An option of the qdisc with one value. `useful` keeps traffic going.
struct Option {
    std::uint16_t type;
    std::size_t size;
    std::uint64_t low, high;
    std::optional<std::uint64_t> other;
    std::array<std::uint64_t, 4> useful;
};

constexpr Option options[] = {
    {TCA_MERCURY_LIMIT, 4, MERCURY_LIMIT_MIN, MERCURY_LIMIT_MAX, {}, {10, 100, 1000, 100000}},
    {TCA_MERCURY_MEMORY_LIMIT,
     4,
     MERCURY_MEMORY_MIN,
     MERCURY_MEMORY_MAX,
     {},
     {1 << 20, 1 << 20, 4 << 20, 1 << 28}},
    {TCA_MERCURY_KEY, 1, 0, __MERCURY_KEY_MAX - 1, {}, {0, 0, 1, 2}},
    {TCA_MERCURY_DEFAULT_SHARE, 4, MERCURY_SHARE_MIN, MERCURY_SHARE_MAX, {}, {1, 10, 50, 99}},
    {TCA_MERCURY_RESCUE, 4, MERCURY_RESCUE_MIN, MERCURY_RESCUE_MAX, {}, {0, 10, 50, 100}},
    {TCA_MERCURY_RATE, 8, MERCURY_RATE_MIN, MERCURY_RATE_MAX, 0, {0, 1000000, 10000000, 100000000}},
    {TCA_MERCURY_SPLIT_GSO, 1, 0, __MERCURY_SPLIT_MAX - 1, {}, {0, 1, 2, 1}},
    {TCA_MERCURY_ACK_FIRST, 1, 0, 1, {}, {0, 1, 0, 1}},
    {TCA_MERCURY_CE_THRESHOLD,
     8,
     MERCURY_TIME_MIN,
     MERCURY_TIME_MAX,
     MERCURY_TIME_NONE,
     {1000, 1000000, 100000000, MERCURY_TIME_NONE}},
};

/// Masks that may go together.
struct Masks {
    std::uint32_t layer, job;
};
constexpr Masks masks[] = {
    {MERCURY_MASK_DEFAULT, MERCURY_JOB_MASK_DEFAULT},
    {MERCURY_MASK_DEFAULT, MERCURY_JOB_MASK_DEFAULT},
    {MERCURY_MASK_DEFAULT, 0},
    {0x3f, 0},
    {0x38, 0x7},
    {0xffff0000, 0xff},
    {0x1, 0x2},
};

std::uint64_t random_value(const Option& option, Random& random) {
    if (random.chance(70)) {
        return random.pick(std::span<const std::uint64_t>(option.useful));
    }
    if (option.other && random.chance(30)) {
        return *option.other;
    }
    const std::uint64_t edges[] = {option.low, option.high,
                                   random.magnitude(option.low, option.high)};
    return random.pick(edges);
}

/// Deadlines of bands.
std::uint64_t random_time(Random& random) {
    constexpr std::uint64_t times[] = {MERCURY_TIME_MIN, 1000000, 20000000, MERCURY_TIME_MAX,
                                       MERCURY_TIME_NONE};
    return random.pick(times);
}

std::uint32_t random_jobs(Random& random) {
    constexpr std::uint32_t counts[] = {1, 2, 3, 16, 16, 61, 62};
    return random.pick(counts);
}

std::uint32_t random_bands(Random& random) {
    constexpr std::uint32_t counts[] = {2, 3, 63, 64, 65, 128, 500};
    // The largest take most of a millisecond to set up.
    return random.chance(3) ? MERCURY_BANDS_MAX : random.pick(counts);
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

/// What the default class may have as a child. Not skbprio: of a packet that displaces another
/// of a different length it does not tell its parents the difference.
constexpr const char* child_kinds[] = {
    "pfifo", "bfifo", "pfifo_head_drop", "pfifo_fast", "fq_codel", "codel", "fq",
    "sfq",   "cake",  "netem",           "mercury"};

void put_child_options(Message& message, const std::string& kind, Random& random) {
    if (kind == "netem") {
        tc_netem_qopt netem{};
        netem.limit = static_cast<std::uint32_t>(random.between(1, 1000));
        netem.latency = static_cast<std::uint32_t>(random.below(16000));  // ticks of 64 ns
        netem.duplicate = random.chance(50) ? 1u << 30 : 0;
        netem.loss = random.chance(50) ? 1u << 29 : 0;
        message.put(TCA_OPTIONS, bytes_of(netem));
    } else if (kind == "pfifo" || kind == "pfifo_head_drop") {
        message.put(TCA_OPTIONS, bytes_of(tc_fifo_qopt{.limit = random.chance(50) ? 3u : 500u}));
    }
}

}  // namespace

Operations::Operations(Random& random, int ifindex, std::uint32_t parent)
    : random_(random), ifindex_(ifindex), parent_(parent) {}

Operation Operations::next() {
    using Draw = Operation (Operations::*)();
    struct Choice {
        unsigned weight;
        Draw draw;
    };
    static constexpr Choice choices[] = {
        {30, &Operations::change},        {8, &Operations::refused_change},
        {8, &Operations::flipped_change}, {20, &Operations::change_class},
        {6, &Operations::refused_class},  {4, &Operations::flipped_class},
        {6, &Operations::graft},          {2, &Operations::refused_graft},
        {3, &Operations::ungraft},        {4, &Operations::replace},
        {3, &Operations::remove},         {3, &Operations::add_filter},
        {1, &Operations::remove_filters}, {2, &Operations::device_up_or_down},
    };
    static constexpr unsigned total = [] {
        unsigned sum = 0;
        for (const Choice& choice : choices) {
            sum += choice.weight;
        }
        return sum;
    }();
    if (!up_ && random_.chance(25)) {
        return up();
    }
    if (!present_) {
        return add();
    }
    if (unsure_) {
        return resync();
    }
    auto at = random_.below(total);
    const Choice* choice = choices;
    while (at >= choice->weight) {
        at -= choice++->weight;
    }
    return (this->*choice->draw)();
}

// --- the qdisc ---------------------------------------------------------------------

Message Operations::request(std::uint16_t flags) const {
    Message message(RTM_NEWQDISC, flags);
    message.traffic(ifindex_, handle_, parent_).put(TCA_KIND, MERCURY_KIND);
    return message;
}

void Operations::put_option(Message& message) {
    const Option& option = random_.pick(options);
    message.number(option.type, option.size, random_value(option, random_));
}

void Operations::put_deadlines(Message& message) {
    message.begin(TCA_MERCURY_DEADLINES);
    for (auto count = random_.below(random_.chance(5) ? MERCURY_DEADLINES_MAX + 1 : 4); count--;) {
        mercury_deadline deadline{};
        deadline.job = static_cast<std::uint16_t>(random_.chance(30) ? MERCURY_EVERY_JOB
                                                                     : random_.below(jobs_));
        deadline.first = static_cast<std::uint16_t>(random_.below(bands_));
        deadline.last = static_cast<std::uint16_t>(random_.between(deadline.first, bands_ - 1));
        deadline.time = random_time(random_);
        message.put(TCA_MERCURY_DEADLINE, bytes_of(deadline));
    }
    message.end();
}

/// Any valid options, in any number.
void Operations::put_options(Message& message) {
    message.begin(TCA_OPTIONS);
    if (random_.chance(25)) {
        jobs_ = random_jobs(random_);
        message.number(TCA_MERCURY_JOBS, 4, jobs_);
    }
    if (random_.chance(25)) {
        bands_ = random_bands(random_);
        message.number(TCA_MERCURY_BANDS, 4, bands_);
    }
    if (random_.chance(15)) {
        const Masks& chosen = random_.pick(masks);
        message.number(TCA_MERCURY_MASK, 4, chosen.layer);
        message.number(TCA_MERCURY_JOB_MASK, 4, chosen.job);
    }
    for (auto count = random_.below(4); count--;) {
        put_option(message);
    }
    if (random_.chance(30)) {
        put_deadlines(message);
    }
    message.end();
}

Operation Operations::add() {
    jobs_ = MERCURY_JOBS_DEFAULT;
    bands_ = MERCURY_BANDS_DEFAULT;
    Message message = request(NLM_F_CREATE);
    put_options(message);
    present_ = first_child_ = true;
    has_child_ = has_filter_ = unsure_ = false;
    return {"add", std::move(message)};
}

Operation Operations::remove() {
    Message message(RTM_DELQDISC, 0);
    message.traffic(ifindex_, handle_, parent_);
    present_ = false;
    return {"delete", std::move(message)};
}

/// The same again, which is a change, or another one in its place.
Operation Operations::replace() {
    if (random_.chance(50)) {
        Message message = request(NLM_F_CREATE | NLM_F_REPLACE);
        put_options(message);
        return {"replace", std::move(message)};
    }
    handle_ = handle_ == 0x10000 ? 0x70000 : 0x10000;
    Operation operation = add();
    operation.name = "replace by another";
    operation.message.header()->nlmsg_flags |= NLM_F_REPLACE;
    return operation;
}

Operation Operations::change() {
    Message message = request(0);
    put_options(message);
    return {"change", std::move(message)};
}

/// One value that cannot be, among others that can.
Operation Operations::refused_change() {
    Message message = request(0);
    message.begin(TCA_OPTIONS);
    put_option(message);
    switch (random_.below(8)) {
        case 0:
            message.number(TCA_MERCURY_JOBS, 4, random_.chance(50) ? 0 : MERCURY_JOBS_MAX + 1);
            break;
        case 1:
            message.number(TCA_MERCURY_BANDS, 4, random_.chance(50) ? 1 : MERCURY_BANDS_MAX + 1);
            break;
        case 2:
            message.number(TCA_MERCURY_MASK, 4, 0x5);
            break;
        case 3:
            message.number(TCA_MERCURY_JOB_MASK, 4, 0xffff);
            break;
        case 4:
            message.number(TCA_MERCURY_RATE, 8, random_.between(MERCURY_RATE_MAX + 1, UINT64_MAX));
            break;
        case 5:
            message.number(TCA_MERCURY_LIMIT, random_.below(4), 1);
            break;
        case 6:
            message.number(static_cast<std::uint16_t>(random_.between(TCA_MERCURY_MAX + 1, 0x3fff)),
                           4, 1);
            break;
        default:
            message.number(TCA_MERCURY_CE_THRESHOLD, 8, random_.below(MERCURY_TIME_MIN));
            break;
    }
    message.end();
    return {"change, wrong", std::move(message), Answer::refused};
}

/// Bytes behind the name of the kind, so that the kind is still ours.
void Operations::flip(Message& message) {
    constexpr std::size_t kind = sizeof(nlattr) + ((sizeof MERCURY_KIND + 3) & ~std::size_t{3});
    const std::span<std::byte> attributes = message.attributes().subspan(kind);
    for (auto count = random_.between(1, 4); count--;) {
        attributes[random_.below(attributes.size())] ^=
            static_cast<std::byte>(1 << random_.below(8));
    }
}

Operation Operations::flipped_change() {
    const auto jobs = jobs_;
    const auto bands = bands_;
    Operation operation = change();
    jobs_ = jobs;
    bands_ = bands;
    flip(operation.message);
    operation.name = "change, corrupted";
    operation.answer = Answer::either;
    unsure_ = true;
    return operation;
}

Operation Operations::resync() {
    Message message = request(0);
    message.begin(TCA_OPTIONS);
    message.number(TCA_MERCURY_JOBS, 4, jobs_);
    message.number(TCA_MERCURY_BANDS, 4, bands_);
    message.end();
    unsure_ = false;
    return {"change, back to known sizes", std::move(message)};
}

Operation Operations::open() {
    Message message = request(0);
    message.begin(TCA_OPTIONS).number(TCA_MERCURY_RATE, 8, 0).end();
    return {"change, no rate", std::move(message)};
}

// --- classes -----------------------------------------------------------------------

Message Operations::class_request(std::uint32_t minor) const {
    Message message(RTM_NEWTCLASS, 0);
    message.traffic(ifindex_, handle_ | minor, handle_).put(TCA_KIND, MERCURY_KIND);
    return message;
}

std::uint32_t Operations::random_minor() {
    const auto job = static_cast<std::uint32_t>(random_.below(jobs_));
    return random_.chance(40)
               ? MERCURY_MINOR_JOB(job)
               : MERCURY_MINOR_BAND(job, static_cast<std::uint32_t>(random_.below(bands_)));
}

Operation Operations::change_class() {
    constexpr std::uint64_t limits[] = {0, 1, 5, 100, MERCURY_LIMIT_MAX};
    const std::uint32_t minor = random_minor();
    Message message = class_request(minor);
    message.begin(TCA_OPTIONS);
    if (random_.chance(40)) {
        message.number(TCA_MERCURY_CLASS_LIMIT, 4, random_.pick(limits));
    }
    if (minor >= MERCURY_MINOR_JOB(0)) {
        message.number(TCA_MERCURY_CLASS_WEIGHT, 4,
                       random_.magnitude(MERCURY_WEIGHT_MIN, MERCURY_WEIGHT_MAX));
    } else if (random_.chance(60)) {
        message.number(TCA_MERCURY_CLASS_DEADLINE, 8, random_time(random_));
    }
    message.end();
    return {"class change", std::move(message)};
}

Operation Operations::refused_class() {
    switch (random_.below(4)) {
        case 0: {
            Message message(RTM_DELTCLASS, 0);
            message.traffic(ifindex_, handle_ | random_minor(), handle_);
            return {"class delete", std::move(message), Answer::refused};
        }
        case 1: {
            Message message = class_request(MERCURY_MINOR_JOB(0));
            message.begin(TCA_OPTIONS).number(TCA_MERCURY_CLASS_WEIGHT, 4, 0).end();
            return {"class change, no weight", std::move(message), Answer::refused};
        }
        case 2: {
            Message message = class_request(MERCURY_MINOR_JOB(MERCURY_JOBS_MAX));
            message.header()->nlmsg_flags |= NLM_F_CREATE;
            message.begin(TCA_OPTIONS).number(TCA_MERCURY_CLASS_WEIGHT, 4, 1).end();
            return {"class create", std::move(message), Answer::refused};
        }
        default: {
            Message message = class_request(MERCURY_MINOR_DEFAULT);
            message.begin(TCA_OPTIONS).number(TCA_MERCURY_CLASS_LIMIT, 4, 1).end();
            return {"class change of the default", std::move(message), Answer::refused};
        }
    }
}

Operation Operations::flipped_class() {
    Operation operation = change_class();
    flip(operation.message);
    operation.name = "class change, corrupted";
    operation.answer = Answer::either;
    return operation;
}

// --- the child of the default class ------------------------------------------------

Operation Operations::graft() {
    const std::string kind = random_.pick(child_kinds);
    Message message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE);
    const auto handle = static_cast<std::uint32_t>(random_.between(0x100, 0x104)) << 16;
    message.traffic(ifindex_, handle, handle_ | MERCURY_MINOR_DEFAULT).put(TCA_KIND, kind);
    put_child_options(message, kind, random_);
    first_child_ = false;
    has_child_ = true;
    // A handle of another kind is refused, as is a second netem that duplicates.
    return {"graft " + kind, std::move(message), Answer::either};
}

Operation Operations::refused_graft() {
    Message message(RTM_NEWQDISC, NLM_F_CREATE);
    message.traffic(ifindex_, 0x50000, handle_ | random_minor())
        .put(TCA_KIND, std::string("pfifo"));
    return {"graft to a band or job", std::move(message), Answer::refused};
}

Operation Operations::ungraft() {
    Message message(RTM_DELQDISC, 0);
    message.traffic(ifindex_, 0, handle_ | MERCURY_MINOR_DEFAULT);
    first_child_ = false;
    return {"delete the child", std::move(message), Answer::either};
}

// --- filters and the device --------------------------------------------------------

Operation Operations::add_filter() {
    Message message(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL);
    const auto priority = static_cast<std::uint32_t>(random_.between(1, 3)) << 16;
    message.traffic(ifindex_, 0, handle_, priority | std::uint32_t{__builtin_bswap16(ETH_P_ALL)});
    message.put(TCA_KIND, std::string("matchall"));
    message.begin(TCA_OPTIONS);
    message.number(TCA_MATCHALL_CLASSID, 4, handle_ | random_minor());
    message.end();
    // There may be one of this priority, or, after a size has shrunk, no such class.
    return {"filter", std::move(message), Answer::either};
}

Operation Operations::remove_filters() {
    Message message(RTM_DELTFILTER, 0);
    message.traffic(ifindex_, 0, handle_, 0);
    return {"delete all filters", std::move(message), Answer::either};
}

Operation Operations::set_device(bool up) {
    up_ = up;
    Message message(RTM_NEWLINK, 0);
    message.link(ifindex_, up);
    return {up ? "up" : "down", std::move(message)};
}

Operation Operations::device_up_or_down() {
    return set_device(!up_);
}

Operation Operations::up() {
    return set_device(true);
}

}  // namespace fuzz
