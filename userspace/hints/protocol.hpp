// SPDX-License-Identifier: MIT
//
// The hint protocol: every message, what it may hold, and its bytes. docs/hints.md describes it
// with examples.
//
// A message is one packet of a UNIX seqpacket socket, and a JSON object in UTF-8. The client asks
// and the daemon answers, once for each request and in their order.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.hpp"
#include "layers/profile.hpp"

namespace mercury::hints {

constexpr std::array<unsigned, 1> versions{1};
constexpr const char* default_socket = "/run/mercury/hints.sock";

// A default socket buffer (net.core.wmem_default) holds the largest message.
constexpr std::size_t message_bytes_max = std::size_t{128} << 10;
constexpr std::size_t depth_max = 8;  // of arrays and objects; a later version may need more
constexpr std::size_t name_bytes_max = 128;
constexpr std::size_t layers_max = 1024;
constexpr std::size_t classes_max = 32;
constexpr unsigned job_number_max = 255;
constexpr std::size_t rules_max = 64;
constexpr std::uint32_t lowat_max = 1U << 30;

// Requests -------------------------------------------------------------------------------------

/// Comes first.
struct Hello {
    unsigned version = versions.back();
    std::string client;  // for people: "replay 0.1.0"

    friend bool operator==(const Hello&, const Hello&) = default;
};

/// What this connection trains. A second one replaces the first. Clients of one user that give
/// the same name are one job.
struct DeclareJob {
    std::string name;
    std::vector<Layer> layers;  // from the input; each has bytes
    std::size_t classes = 0;    // that the client can use: connections to each peer
    /// The number that the job had before the connection was lost: marks still say so.
    std::optional<unsigned> number;

    friend bool operator==(const DeclareJob&, const DeclareJob&) = default;
};

/// Comes with one descriptor, a socket that LAYER is sent on.
struct Assign {
    std::size_t layer = 0;
    std::optional<std::uint32_t> lowat;  // TCP_NOTSENT_LOWAT, bytes

    friend bool operator==(const Assign&, const Assign&) = default;
};

/// An iteration begins.
struct Step {
    friend bool operator==(const Step&, const Step&) = default;
};

struct QueryStatus {
    friend bool operator==(const QueryStatus&, const QueryStatus&) = default;
};

/// The daemon answers and hangs up. To hang up without it is no error.
struct Bye {
    friend bool operator==(const Bye&, const Bye&) = default;
};

using Request = std::variant<Hello, DeclareJob, Assign, Step, QueryStatus, Bye>;

/// As they are written in a message; by the index in Request, and in Answer, which has one more.
constexpr std::array<std::string_view, std::variant_size_v<Request>> request_types{
    "hello", "job", "assign", "step", "status", "bye"};

// Answers --------------------------------------------------------------------------------------

struct Welcome {
    unsigned version = versions.back();
    std::string daemon;  // for people: "mercuryd 0.1.0"

    friend bool operator==(const Welcome&, const Welcome&) = default;
};

struct JobClass {
    std::size_t first = 0;  // layer
    std::size_t last = 0;   // layer, included
    std::uint32_t mark = 0;
    unsigned priority = 0;
    std::optional<std::chrono::nanoseconds> deadline;

    friend bool operator==(const JobClass&, const JobClass&) = default;
};

struct JobDeclared {
    unsigned number = 0;
    std::vector<JobClass> classes;
    bool setsockopt = false;  // the client may mark its sockets by the option of mercury.h

    friend bool operator==(const JobDeclared&, const JobDeclared&) = default;
};

struct Assigned {
    std::size_t index = 0;  // of the class
    std::uint32_t mark = 0;

    friend bool operator==(const Assigned&, const Assigned&) = default;
};

struct Stepped {
    friend bool operator==(const Stepped&, const Stepped&) = default;
};

struct Status {
    struct Class {
        std::uint32_t mark = 0;
        std::size_t sockets = 0;
        std::optional<std::chrono::nanoseconds> deadline;

        friend bool operator==(const Class&, const Class&) = default;
    };
    struct Job {
        unsigned number = 0;
        std::string name;
        std::uint32_t user = 0;
        std::size_t clients = 0;
        std::uint64_t steps = 0;
        std::optional<std::chrono::nanoseconds> interval;  // of the iterations
        std::vector<Class> classes;

        friend bool operator==(const Job&, const Job&) = default;
    };
    struct Device {
        std::string name;
        std::size_t qdiscs = 0;  // of kind mercury; several under mq
        bool managed = false;    // by the daemon's configuration
        std::string problem;     // why it is not as configured; empty: it is

        friend bool operator==(const Device&, const Device&) = default;
    };

    /// Of the configuration, for programs that give no hints.
    struct Rule {
        std::string name;
        std::uint64_t sockets = 0;  // that it has marked
        std::uint64_t failed = 0;   // that it could not mark, or not in full
        std::string problem;        // why it does nothing; empty: it is in the kernel

        friend bool operator==(const Rule&, const Rule&) = default;
    };

    std::string daemon;
    std::chrono::seconds uptime{0};
    std::size_t clients = 0;
    std::uint64_t messages = 0;  // that have been answered, errors too
    std::uint64_t errors = 0;
    std::uint64_t sockets = 0;       // that have been marked, but by rules
    std::string setsockopt = "off";  // or "on", or why the socket option is not there
    std::vector<Device> devices;
    std::vector<Job> jobs;     // of the asking user; of all, for root and the daemon's own
    std::vector<Rule> rules;   // for root and the daemon's own user
    std::size_t left_out = 0;  // jobs and devices that no message has room for

    friend bool operator==(const Status&, const Status&) = default;
};

struct Goodbye {
    friend bool operator==(const Goodbye&, const Goodbye&) = default;
};

enum class Code : std::uint8_t {
    Malformed,   // no message: too long, no JSON, too deep, no object
    Invalid,     // a field is missing, of the wrong type or out of range
    Unknown,     // a type that this version does not have
    Version,     // a version that is not spoken; Failure::versions says which are
    Order,       // no hello or no job before what needs it, or a second hello
    Layer,       // that the job does not have
    Descriptor,  // none, several, one that is not wanted, or one that cannot be marked
    Busy,        // the socket has data underway, and marking would reorder it; later
    Limit,       // of this user, or of the daemon
    Kernel,      // refused it
};

/// As they are written in a message, by their number.
constexpr std::array<std::string_view, 10> code_names{
    "malformed", "invalid",    "unknown", "version", "order",
    "layer",     "descriptor", "busy",    "limit",   "kernel"};

/// Nothing has changed.
struct Failure {
    Code code = Code::Malformed;
    std::string message;
    std::string request;             // its type, if that much was understood
    std::vector<unsigned> versions;  // with Code::Version

    friend bool operator==(const Failure&, const Failure&) = default;
};

using Answer = std::variant<Welcome, JobDeclared, Assigned, Stepped, Status, Goodbye, Failure>;

// Bytes ----------------------------------------------------------------------------------------

/// As it is written in a message: "busy".
constexpr std::string_view to_string(Code code) {
    return code_names.at(static_cast<std::size_t>(code));
}

/// Of a request: "assign".
std::string_view type_of(const Request& request);

std::string encode(const Request& request);
std::string encode(const Answer& answer);

/// Unknown fields are passed over. Never throws because of the bytes.
std::variant<Request, Failure> decode_request(std::string_view bytes);
Result<Answer> decode_answer(std::string_view bytes);

/// 1 to name_bytes_max bytes of UTF-8, without control characters. WHAT names it in the error.
Result<void> check_name(std::string_view what, std::string_view name);

}  // namespace mercury::hints
