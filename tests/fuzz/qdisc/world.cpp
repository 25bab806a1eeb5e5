// SPDX-License-Identifier: MIT
#include "world.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <linux/pkt_sched.h>
#include <net/if.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fuzz {
namespace {

constexpr const char* module_name = "sch_mercury";

constexpr Tree all_trees[] = {
    {"none", "", TC_H_ROOT},
    {"none, again", "", TC_H_ROOT},
    {"tbf", "qdisc add dev eth0 root handle 9: tbf rate 200mbit burst 20k limit 1mb", 0x90001},
    {"htb",
     "qdisc add dev eth0 root handle 9: htb default 1\n"
     "class add dev eth0 parent 9: classid 9:1 htb rate 200mbit burst 64k",
     0x90001},
    // Link-sharing only: a real-time class does not come back from a reset (docs/hardening.md).
    {"hfsc",
     "qdisc add dev eth0 root handle 9: hfsc default 1\n"
     "class add dev eth0 parent 9: classid 9:1 hfsc ls rate 200mbit ul rate 200mbit",
     0x90001},
    {"drr",
     "qdisc add dev eth0 root handle 9: drr\n"
     "class add dev eth0 parent 9: classid 9:1 drr\n"
     "filter add dev eth0 parent 9: matchall flowid 9:1",
     0x90001},
    {"qfq",
     "qdisc add dev eth0 root handle 9: qfq\n"
     "class add dev eth0 parent 9: classid 9:1 qfq weight 1 maxpkt 65536\n"
     "filter add dev eth0 parent 9: matchall flowid 9:1",
     0x90001},
    {"ets",
     "qdisc add dev eth0 root handle 9: ets bands 2 quanta 1514 1514 priomap 0 0 0 0 0 0 0 0 "
     "0 0 0 0 0 0 0 0",
     0x90001},
    {"prio",
     "qdisc add dev eth0 root handle 9: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
     0x90001},
    {"netem", "qdisc add dev eth0 root handle 9: netem delay 1ms limit 2000", 0x90001},
    {"netem that duplicates",
     "qdisc add dev eth0 root handle 9: netem delay 1ms reorder 30% duplicate 20% limit 2000",
     0x90001},
    {"mq", "qdisc add dev eth0 root handle 9: mq", 0x90001},
};

/// Both ends have one address, and nobody asks for another's: what a device that goes down
/// forgets of its neighbours is not missed.
constexpr const char* links =
    "netns add fuzz-a\n"
    "netns add fuzz-b\n"
    "link add eth0 netns fuzz-a address 02:00:00:00:00:0a numtxqueues 2 numrxqueues 2 type veth "
    "peer name eth0 netns fuzz-b address 02:00:00:00:00:0a numtxqueues 2 numrxqueues 2\n";

/// Nobody has 10.0.x.9 and fd00::9: what is sent there ends at the receiver without an answer.
constexpr const char* sender_links =
    "link set lo up\n"
    "link set eth0 up arp off\n"
    "link add link eth0 name eth0.5 type vlan id 5\n"
    "link set eth0.5 up arp off\n"
    "addr add 10.0.0.1/24 dev eth0\n"
    "addr add 10.0.5.1/24 dev eth0.5\n"
    "addr add fd00::1/64 dev eth0 nodad\n";
constexpr const char* receiver_links =
    "link set lo up\n"
    "link set eth0 up arp off\n"
    "addr add 10.0.0.2/24 dev eth0\n";
constexpr const char* keep_ipv6 =
    "ip netns exec fuzz-a sh -c "
    "'echo 1 >/proc/sys/net/ipv6/conf/eth0/keep_addr_on_down'";

}  // namespace

std::span<const Tree> trees() {
    return all_trees;
}

void run(const std::string& command, const std::string& input) {
    std::FILE* program = popen(command.c_str(), "we");
    if (!program) {
        throw std::system_error(errno, std::generic_category(), command);
    }
    std::fputs(input.c_str(), program);
    if (const int status = pclose(program)) {
        throw std::runtime_error(command + " failed with status " + std::to_string(status) +
                                 ", fed with:\n" + input);
    }
}

Namespace::Namespace(std::string name)
    : name_(std::move(name)), fd_(open(("/run/netns/" + name_).c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) {
        throw std::system_error(errno, std::generic_category(), "namespace " + name_);
    }
}

Namespace::~Namespace() {
    close(fd_);
}

void Namespace::enter() const {
    if (setns(fd_, CLONE_NEWNET)) {
        throw std::system_error(errno, std::generic_category(), "setns " + name_);
    }
}

Inside::Inside(const Namespace& space)
    : home_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    space.enter();
}

Inside::~Inside() {
    if (setns(home_, CLONE_NEWNET)) {
        std::abort();  // nothing that follows would be where it should be
    }
    close(home_);
}

World::Made::Made() {
    run("ip -batch -", links);
    run("ip -n fuzz-a -batch -", sender_links);
    run("ip -n fuzz-b -batch -", receiver_links);
    run(keep_ipv6);
}

World::World(const Tree& tree) : tree_(tree), sender_("fuzz-a"), receiver_("fuzz-b") {
    if (*tree.commands) {
        run("tc -n fuzz-a -batch -", tree.commands);
    }
    const Inside inside(sender_);
    ifindex_ = static_cast<int>(if_nametoindex(device));
}

World::~World() {
    try {
        drop_names();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
    }
}

void World::drop_names() {
    if (has_names_) {
        has_names_ = false;
        run("ip -batch -", "netns del fuzz-a\nnetns del fuzz-b\n");
    }
}

void World::delete_device() {
    run("ip -n fuzz-a -batch -", "link del eth0\n");
}

/// There may be none.
void World::delete_root() {
    run("tc -n fuzz-a -force -batch - 2>/dev/null || true", "qdisc del dev eth0 root\n");
}

int module_users() {
    std::ifstream modules("/proc/modules");
    std::string name;
    long size = 0;
    int users = 0;
    for (std::string line; modules >> name >> size >> users; std::getline(modules, line)) {
        if (name == module_name) {
            return users;
        }
    }
    return -1;
}

bool reload_module() {
    if (syscall(SYS_delete_module, module_name, O_NONBLOCK)) {
        return false;
    }
    run(std::string("modprobe ") + module_name);
    return true;
}

}  // namespace fuzz
