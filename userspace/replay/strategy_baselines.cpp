// SPDX-License-Identifier: MIT
#include "replay/strategy_baselines.hpp"

#include <chrono>
#include <cstdint>

#include "replay/strategy_connect.hpp"
#include "replay/strategy_parameters.hpp"
#include "replay/strategy_ps.hpp"
#include "replay/strategy_ring.hpp"

namespace mercury::replay {
namespace {

constexpr std::uint64_t kb = 1024;
constexpr std::uint64_t mb = 1024 * kb;
constexpr std::uint64_t gb = 1024 * mb;

constexpr std::uint64_t partition_min = kb;
constexpr std::chrono::nanoseconds startup_max = std::chrono::seconds(1);

MadeStrategy finish(const ParameterReader& reader, const PsPolicy& policy) {
    if (auto checked = reader.check(); !checked)
        return checked.error();
    return MadeStrategy(std::make_unique<PsStrategy>(policy));
}

}  // namespace

/// ps-lite and MXNet's KVStore: every gradient is sent when the backward pass has it, and pulled
/// when all workers' are in. MXNet splits tensors of more than a million elements equally over
/// the servers and puts a smaller one on one server; splitting all of them is never worse here,
/// where a message costs no time.
///
/// TCP_NOTSENT_LOWAT is not set, as in ZeroMQ: in FIFO order it makes no difference what a socket
/// holds.
MadeStrategy make_fifo(const StrategySpec& spec) {
    ParameterReader reader(spec);
    PsPolicy policy;
    policy.links = read_link_options(reader);
    return finish(reader, policy);
}

/// P3 (MLSys 2019): slices of 40,000 floats dealt to the servers in turn, a priority queue in front
/// of a blocking send, so that no more than one slice is committed to a connection, and a server
/// that returns each slice when all workers' are in, in the same order.
///
/// With the socket buffer that Linux grows to megabytes, the blocking send would commit tens of
/// slices; TCP_NOTSENT_LOWAT keeps what the paper is about.
MadeStrategy make_p3(const StrategySpec& spec) {
    ParameterReader reader(spec);
    PsPolicy policy;
    policy.slice = reader.bytes("slice", 160'000, partition_min, gb);
    policy.push = {.order = Order::priority, .late = true};
    policy.push.startup = reader.time("startup", policy.push.startup, startup_max);
    policy.pull = {.order = Order::priority, .late = true};
    policy.links = read_link_options(reader);
    return finish(reader, policy);
}

/// ByteScheduler (SOSP 2019): partitions in a priority queue in front of any communication library,
/// which gets the most urgent one whenever there is credit: bytes that are with the library and
/// that no server has yet (the implementation returns credit at the end of the push; returned with
/// the pull it can deadlock). Both are to be tuned for each case; the defaults are the
/// implementation's, 1 and 4 million floats.
///
/// In the implementation only the first worker has a queue and the others follow; here each has
/// its own. The partitions are dealt to the servers in turn. The library binds early: what the
/// credit admits is all that is ever queued.
MadeStrategy make_bytescheduler(const StrategySpec& spec) {
    ParameterReader reader(spec);
    PsPolicy policy;
    policy.slice = reader.bytes("partition", 4'000'000, partition_min, gb);
    policy.push = {.order = Order::priority};
    policy.push.credit = reader.bytes("credit", 4 * policy.slice, policy.slice, gb);
    policy.push.startup = reader.time("startup", policy.push.startup, startup_max);
    policy.pull = {.order = Order::priority, .late = true};
    policy.links = read_link_options(reader);
    return finish(reader, policy);
}

/// TicTac (MLSys 2019): the parameters are sent to every worker in one order, which its first
/// algorithm derives from the graph: for a chain of layers that of the forward pass. Gradients go
/// as they are ready. The order is enforced by counting at the sender: a parameter that is ready
/// waits for all before it. So nothing is pulled before the first layer, whose gradient is the
/// last to be ready.
///
/// TensorFlow puts a variable on one server; here each is split equally, as with fifo, or the
/// server of VGG's largest layer would decide everything.
MadeStrategy make_tictac(const StrategySpec& spec) {
    ParameterReader reader(spec);
    PsPolicy policy;
    policy.pull = {.order = Order::enforced};
    policy.links = read_link_options(reader);
    return finish(reader, policy);
}

/// PyTorch's DistributedDataParallel: buckets of 25 MiB, the first of 1 MiB, reduced in the order
/// in which they are full. The next forward pass starts after the last one, unless overlap=yes.
/// gloo reduces two buckets at a time and cuts chunks into segments of at most 1 MiB.
MadeStrategy make_allreduce(const StrategySpec& spec) {
    ParameterReader reader(spec);
    RingPolicy policy{};
    policy.bucket = reader.bytes("bucket", 25 * mb, kb, gb);
    policy.first_bucket = reader.bytes("first", mb, kb, gb);
    policy.segment = reader.bytes("segment", mb, kb, gb);
    policy.concurrent = reader.count("concurrent", 2, 1, 64);
    policy.overlap = reader.yes_no("overlap", false);
    policy.links = read_link_options(reader);
    if (auto checked = reader.check(); !checked)
        return checked.error();
    return MadeStrategy(std::make_unique<RingStrategy>(policy));
}

/// TensorLights (HPBDC 2019): one priority for each job, whatever it sends; within a job it is a
/// vanilla parameter server.
MadeStrategy make_tensorlights(const StrategySpec& spec) {
    ParameterReader reader(spec);
    PsPolicy policy;
    policy.links = read_link_options(reader, Marking::job_rank);
    return finish(reader, policy);
}

/// What Mercury would be without the kernel: its aggregation as bytes arrive, and its order in a
/// queue in front of one late-bound connection each way, 64 KiB at a time.
MadeStrategy make_mercury_user(const StrategySpec& spec) {
    ParameterReader reader(spec);
    PsPolicy policy;
    policy.push = {.order = Order::priority, .late = true, .piece = 64 * kb};
    policy.pull = policy.push;
    policy.streaming = true;
    policy.links = read_link_options(reader);
    return finish(reader, policy);
}

}  // namespace mercury::replay
