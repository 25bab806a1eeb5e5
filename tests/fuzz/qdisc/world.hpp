// SPDX-License-Identifier: MIT
//
// Two network namespaces joined by a veth, and the tree of qdiscs on its sending end.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace fuzz {

/// A name under /run/netns, held open.
class Namespace {
  public:
    explicit Namespace(std::string name);
    ~Namespace();
    Namespace(const Namespace&) = delete;
    Namespace& operator=(const Namespace&) = delete;

    /// The calling thread stays in it.
    void enter() const;
    const std::string& name() const { return name_; }

  private:
    std::string name_;
    int fd_;
};

/// The calling thread is in a namespace as long as this exists.
class Inside {
  public:
    explicit Inside(const Namespace& space);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

  private:
    int home_;
};

/// What is above mercury: commands of tc, and the class that mercury is put into.
struct Tree {
    const char* name;
    const char* commands;
    std::uint32_t parent;
};
std::span<const Tree> trees();

constexpr const char* device = "eth0";
constexpr const char* vlan_device = "eth0.5";

/// What ends a world, while traffic runs or after it.
enum class Ending { drained, device_deleted, root_deleted, namespace_dropped };

class World {
  public:
    explicit World(const Tree& tree);
    ~World();
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    const Namespace& sender() const { return sender_; }
    const Namespace& receiver() const { return receiver_; }
    const Tree& tree() const { return tree_; }
    int ifindex() const { return ifindex_; }
    void delete_device();
    void delete_root();
    /// The namespaces go with the last descriptor and the last thread in them.
    void drop_names();

  private:
    struct Made {
        Made();
    };

    const Tree& tree_;
    Made made_;
    Namespace sender_;
    Namespace receiver_;
    int ifindex_ = 0;
    bool has_names_ = true;
};

/// Run a program and feed it; throws if it fails.
void run(const std::string& command, const std::string& input = {});

/// How many qdiscs hold the module.
int module_users();
/// Unload the module if it is unused, and load it again. False: it was in use.
bool reload_module();

}  // namespace fuzz
