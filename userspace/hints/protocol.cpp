// SPDX-License-Identifier: MIT
#include "hints/protocol.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mercury::hints {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t time_ns_max = std::chrono::nanoseconds(layer_time_max).count();
// Of what is only for people, in answers: times and counts have no other bound.
constexpr std::uint64_t count_max = UINT64_MAX / 2;

constexpr std::string_view error_type = "error";

/// Reads the fields of an object. After the first problem it goes on with zeros, so that only the
/// end has to ask.
class Fields {
  public:
    /// PLACE is put before the names of fields in problems: "layers[3].".
    explicit Fields(const Json& object, std::string place = "")
        : object_(object), place_(std::move(place)) {
        if (!object.is_object())
            fail("{} is not an object", place_.substr(0, place_.size() - 1));
    }

    const std::optional<std::string>& problem() const { return problem_; }

    template <typename... Args>
    void fail(fmt::format_string<Args...> format, Args&&... args) {
        if (!problem_)
            problem_ = fmt::format(format, std::forward<Args>(args)...);
    }
    /// That of a part.
    void fail(const Fields& part) {
        if (part.problem_ && !problem_)
            problem_ = part.problem_;
    }

    bool has(const char* name) const { return object_.is_object() && object_.contains(name); }

    std::uint64_t number(const char* name, std::uint64_t min, std::uint64_t max) {
        const Json* const field = find(name);
        if (field == nullptr)
            return min;
        if (!field->is_number_unsigned() || *field < min || *field > max) {
            fail("{}{} must be a whole number, {} to {}", place_, name, min, max);
            return min;
        }
        return field->get<std::uint64_t>();
    }

    template <typename T>
    std::optional<T> optional_number(const char* name, std::uint64_t min, std::uint64_t max) {
        if (!has(name))
            return std::nullopt;
        return static_cast<T>(number(name, min, max));
    }

    std::chrono::nanoseconds time(const char* name) {
        return std::chrono::nanoseconds(
            optional_number<std::int64_t>(name, 0, time_ns_max).value_or(0));
    }

    std::optional<std::chrono::nanoseconds> optional_time(const char* name) {
        const auto ns = optional_number<std::int64_t>(name, 0, time_ns_max);
        return ns ? std::optional(std::chrono::nanoseconds(*ns)) : std::nullopt;
    }

    std::string text(const char* name) {
        const Json* const field = find(name);
        if (field == nullptr)
            return {};
        if (!field->is_string()) {
            fail("{}{} must be a string", place_, name);
            return {};
        }
        return field->get<std::string>();
    }

    std::string name(const char* name) {
        std::string given = text(name);
        if (const auto checked = check_name(place_ + name, given); !checked)
            fail("{}", checked.error().message);
        return given;
    }

    bool flag(const char* name) {
        const Json* const field = find(name);
        if (field != nullptr && !field->is_boolean())
            fail("{}{} must be true or false", place_, name);
        return field != nullptr && field->is_boolean() && field->get<bool>();
    }

    /// READ(Fields&) of each element.
    template <typename Read>
    auto list(const char* name, std::size_t min, std::size_t max, const Read& read) {
        std::vector<decltype(read(std::declval<Fields&>()))> elements;
        const Json* const field = find(name);
        if (field == nullptr)
            return elements;
        if (!field->is_array() || field->size() < min || field->size() > max) {
            fail("{}{} must be an array of {} to {} elements", place_, name, min, max);
            return elements;
        }
        for (const Json& element : *field) {
            Fields part(element, fmt::format("{}{}[{}].", place_, name, elements.size()));
            elements.push_back(read(part));
            fail(part);
            if (problem_)
                break;
        }
        return elements;
    }

  private:
    const Json* find(const char* name) {
        if (!object_.is_object())
            return nullptr;
        const auto found = object_.find(name);
        if (found == object_.end()) {
            fail("{}{} is missing", place_, name);
            return nullptr;
        }
        return &*found;
    }

    const Json& object_;
    std::string place_;
    std::optional<std::string> problem_;
};

// Reading --------------------------------------------------------------------------------------

/// How deep arrays and objects are nested, at least if it is JSON.
std::size_t depth_of(std::string_view text) {
    std::size_t depth = 0;
    std::size_t deepest = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string && c == '\\')
            ++i;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            deepest = std::max(deepest, ++depth);
        else if (!in_string && (c == '}' || c == ']') && depth > 0)
            --depth;
    }
    return deepest;
}

/// Of what the parser says: without its number of the error, and without the text that it last
/// read, which may be as long as the message.
std::string_view what_is_wrong(std::string_view said) {
    if (const auto number = said.find("] "); number != std::string_view::npos)
        said.remove_prefix(number + 2);
    return said.substr(0, said.find("; last read"));
}

Result<Json> parse(std::string_view bytes) {
    if (bytes.size() > message_bytes_max) {
        return Error{
            fmt::format("a message has at most {} bytes, not {}", message_bytes_max, bytes.size())};
    }
    if (depth_of(bytes) > depth_max) {
        return Error{
            fmt::format("arrays and objects are nested at most {} deep in a message", depth_max)};
    }
    try {
        Json json = Json::parse(bytes);
        if (!json.is_object())
            return Error{"a message is a JSON object"};
        return json;
    } catch (const Json::parse_error& problem) {
        return Error{fmt::format("a message is JSON in UTF-8: {}", what_is_wrong(problem.what()))};
    } catch (const Json::out_of_range& /*problem*/) {
        return Error{"a number in the message is too large for anything"};
    }
}

Layer read_layer(Fields& fields) {
    Layer layer;
    layer.name = fields.name("name");
    layer.bytes = fields.number("bytes", 1, layer_bytes_max);
    layer.forward = fields.time("forward_ns");
    layer.backward = fields.time("backward_ns");
    return layer;
}

Request read_hello(Fields& fields) {
    return Hello{static_cast<unsigned>(fields.number("version", 0, UINT32_MAX)),
                 fields.name("client")};
}

Request read_job(Fields& fields) {
    DeclareJob job;
    job.name = fields.name("name");
    job.layers = fields.list("layers", 1, layers_max, read_layer);
    job.classes = fields.number("classes", 1, classes_max);
    job.number = fields.optional_number<unsigned>("number", 0, job_number_max);
    return job;
}

Request read_assign(Fields& fields) {
    Assign assign;
    assign.layer = fields.number("layer", 0, layers_max - 1);
    assign.lowat = fields.optional_number<std::uint32_t>("lowat", 1, lowat_max);
    return assign;
}

/// By the index in `request_types`.
constexpr std::array<Request (*)(Fields&), request_types.size()> request_readers{
    read_hello,
    read_job,
    read_assign,
    [](Fields& /*fields*/) -> Request { return Step{}; },
    [](Fields& /*fields*/) -> Request { return QueryStatus{}; },
    [](Fields& /*fields*/) -> Request { return Bye{}; }};

Answer read_welcome(Fields& fields) {
    return Welcome{static_cast<unsigned>(fields.number("version", 0, UINT32_MAX)),
                   fields.name("daemon")};
}

Answer read_declared(Fields& fields) {
    JobDeclared job;
    job.number = static_cast<unsigned>(fields.number("number", 0, job_number_max));
    job.classes = fields.list("classes", 1, classes_max, [](Fields& part) {
        JobClass one;
        one.first = part.number("first", 0, layers_max - 1);
        one.last = part.number("last", one.first, layers_max - 1);
        one.mark = static_cast<std::uint32_t>(part.number("mark", 0, UINT32_MAX));
        one.priority = static_cast<unsigned>(part.number("priority", 0, INT32_MAX));
        one.deadline = part.optional_time("deadline_ns");
        return one;
    });
    if (fields.has("setsockopt"))  // not known to earlier daemons
        job.setsockopt = fields.flag("setsockopt");
    return job;
}

Answer read_assigned(Fields& fields) {
    return Assigned{fields.number("class", 0, classes_max - 1),
                    static_cast<std::uint32_t>(fields.number("mark", 0, UINT32_MAX))};
}

Status::Job read_status_job(Fields& fields) {
    Status::Job job;
    job.number = static_cast<unsigned>(fields.number("number", 0, job_number_max));
    job.name = fields.name("name");
    job.user = static_cast<std::uint32_t>(fields.number("user", 0, UINT32_MAX));
    job.clients = fields.number("clients", 0, count_max);
    job.steps = fields.number("steps", 0, count_max);
    job.interval = fields.optional_time("interval_ns");
    job.classes = fields.list("classes", 0, classes_max, [](Fields& part) {
        return Status::Class{static_cast<std::uint32_t>(part.number("mark", 0, UINT32_MAX)),
                             part.number("sockets", 0, count_max),
                             part.optional_time("deadline_ns")};
    });
    return job;
}

Answer read_status(Fields& fields) {
    Status status;
    status.daemon = fields.name("daemon");
    status.uptime =
        std::chrono::seconds(static_cast<std::int64_t>(fields.number("uptime_s", 0, count_max)));
    status.clients = fields.number("clients", 0, count_max);
    status.messages = fields.number("messages", 0, count_max);
    status.errors = fields.number("errors", 0, count_max);
    status.sockets = fields.number("sockets", 0, count_max);
    if (fields.has("setsockopt"))  // not known to earlier daemons
        status.setsockopt = fields.text("setsockopt");
    status.devices = fields.list("devices", 0, message_bytes_max, [](Fields& part) {
        return Status::Device{part.text("name"), part.number("qdiscs", 0, count_max),
                              part.flag("managed"), part.text("problem")};
    });
    status.jobs = fields.list("jobs", 0, job_number_max + 1, read_status_job);
    if (fields.has("rules")) {  // not known to earlier daemons
        status.rules = fields.list("rules", 0, rules_max, [](Fields& part) {
            return Status::Rule{part.name("name"), part.number("sockets", 0, count_max),
                                part.number("failed", 0, count_max), part.text("problem")};
        });
    }
    status.left_out = fields.number("left_out", 0, count_max);
    return status;
}

Answer read_failure(Fields& fields) {
    Failure failure;
    const std::string code = fields.text("code");
    const auto* const known = std::ranges::find(code_names, code);
    if (known == code_names.end())
        fields.fail("there is no code \"{}\"", code);
    else
        failure.code = static_cast<Code>(known - code_names.begin());
    failure.message = fields.text("message");
    if (fields.has("request"))
        failure.request = fields.text("request");
    return failure;
}

constexpr std::array<Answer (*)(Fields&), request_types.size()> answer_readers{
    read_welcome,  read_declared,
    read_assigned, [](Fields& /*fields*/) -> Answer { return Stepped{}; },
    read_status,   [](Fields& /*fields*/) -> Answer { return Goodbye{}; }};

/// The versions that a failure names; those that are no such numbers are passed over.
std::vector<unsigned> read_versions(const Json& message) {
    std::vector<unsigned> spoken;
    if (const auto found = message.find("versions"); found != message.end() && found->is_array()) {
        for (const Json& version : *found) {
            if (version.is_number_unsigned() && version <= UINT32_MAX)
                spoken.push_back(version.get<unsigned>());
        }
    }
    return spoken;
}

// Writing --------------------------------------------------------------------------------------

void put_time(Json& object, const char* name, std::optional<std::chrono::nanoseconds> time) {
    if (time)
        object[name] = time->count();
}

void write(Json& json, const Hello& hello) {
    json["version"] = hello.version;
    json["client"] = hello.client;
}

void write(Json& json, const DeclareJob& job) {
    json["name"] = job.name;
    json["classes"] = job.classes;
    if (job.number)
        json["number"] = *job.number;
    Json& layers = json["layers"] = Json::array();
    for (const Layer& layer : job.layers) {
        Json& one = layers.emplace_back(Json{{"name", layer.name}, {"bytes", layer.bytes}});
        if (layer.forward.count() != 0)
            one["forward_ns"] = layer.forward.count();
        if (layer.backward.count() != 0)
            one["backward_ns"] = layer.backward.count();
    }
}

void write(Json& json, const Assign& assign) {
    json["layer"] = assign.layer;
    if (assign.lowat)
        json["lowat"] = *assign.lowat;
}

void write(Json& /*json*/, const Step& /*step*/) {}
void write(Json& /*json*/, const QueryStatus& /*query*/) {}
void write(Json& /*json*/, const Bye& /*bye*/) {}

void write(Json& json, const Welcome& welcome) {
    json["version"] = welcome.version;
    json["daemon"] = welcome.daemon;
}

void write(Json& json, const JobDeclared& job) {
    json["number"] = job.number;
    Json& classes = json["classes"] = Json::array();
    for (const JobClass& one : job.classes) {
        Json& written = classes.emplace_back(Json{{"first", one.first},
                                                  {"last", one.last},
                                                  {"mark", one.mark},
                                                  {"priority", one.priority}});
        put_time(written, "deadline_ns", one.deadline);
    }
    if (job.setsockopt)
        json["setsockopt"] = true;
}

void write(Json& json, const Assigned& assigned) {
    json["class"] = assigned.index;
    json["mark"] = assigned.mark;
}

void write(Json& /*json*/, const Stepped& /*stepped*/) {}
void write(Json& /*json*/, const Goodbye& /*goodbye*/) {}

Json status_job(const Status::Job& job) {
    Json json{{"number", job.number},
              {"name", job.name},
              {"user", job.user},
              {"clients", job.clients},
              {"steps", job.steps}};
    put_time(json, "interval_ns", job.interval);
    Json& classes = json["classes"] = Json::array();
    for (const Status::Class& one : job.classes) {
        Json& written = classes.emplace_back(Json{{"mark", one.mark}, {"sockets", one.sockets}});
        put_time(written, "deadline_ns", one.deadline);
    }
    return json;
}

void write(Json& json, const Status& status) {
    json["daemon"] = status.daemon;
    json["uptime_s"] = status.uptime.count();
    json["clients"] = status.clients;
    json["messages"] = status.messages;
    json["errors"] = status.errors;
    json["sockets"] = status.sockets;
    json["setsockopt"] = status.setsockopt;
    json["devices"] = Json::array();
    for (const Status::Device& device : status.devices) {
        json["devices"].push_back({{"name", device.name},
                                   {"qdiscs", device.qdiscs},
                                   {"managed", device.managed},
                                   {"problem", device.problem}});
    }
    json["jobs"] = Json::array();
    for (const Status::Job& job : status.jobs)
        json["jobs"].push_back(status_job(job));
    json["rules"] = Json::array();
    for (const Status::Rule& rule : status.rules) {
        json["rules"].push_back({{"name", rule.name},
                                 {"sockets", rule.sockets},
                                 {"failed", rule.failed},
                                 {"problem", rule.problem}});
    }
    json["left_out"] = status.left_out;
}

void write(Json& json, const Failure& failure) {
    if (!failure.request.empty())
        json["request"] = failure.request;
    json["code"] = to_string(failure.code);
    json["message"] = failure.message;
    if (!failure.versions.empty())
        json["versions"] = failure.versions;
}

std::string dump(const Json& json) {
    // What came from elsewhere, such as a message of the kernel, need not be UTF-8.
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename Message>
std::string encode_as(std::string_view type, const Message& message) {
    Json json{{"type", type}};
    std::visit([&json](const auto& one) { write(json, one); }, message);
    return dump(json);
}

}  // namespace

std::string_view type_of(const Request& request) {
    return request_types.at(request.index());
}

std::string encode(const Request& request) {
    return encode_as(type_of(request), request);
}

std::string encode(const Answer& answer) {
    return encode_as(
        answer.index() < request_types.size() ? request_types.at(answer.index()) : error_type,
        answer);
}

std::variant<Request, Failure> decode_request(std::string_view bytes) {
    const auto json = parse(bytes);
    if (!json)
        return Failure{Code::Malformed, json.error().message, "", {}};
    Fields fields(json.value());
    const std::string type = fields.text("type");
    if (fields.problem())
        return Failure{Code::Invalid, *fields.problem(), "", {}};
    const auto* const known = std::ranges::find(request_types, type);
    if (known == request_types.end()) {
        return Failure{Code::Unknown,
                       fmt::format("there is no request of this type; there are {}",
                                   fmt::join(request_types, ", ")),
                       "",
                       {}};
    }
    Request request =
        request_readers.at(static_cast<std::size_t>(known - request_types.begin()))(fields);
    if (fields.problem())
        return Failure{Code::Invalid, *fields.problem(), type, {}};
    return request;
}

Result<Answer> decode_answer(std::string_view bytes) {
    const auto json = parse(bytes);
    if (!json)
        return json.error();
    Fields fields(json.value());
    const std::string type = fields.text("type");
    if (type == error_type) {
        Answer answer = read_failure(fields);
        if (fields.problem())
            return Error{*fields.problem()};
        std::get<Failure>(answer).versions = read_versions(json.value());
        return answer;
    }
    const auto* const known = std::ranges::find(request_types, type);
    if (known == request_types.end() && !fields.problem())
        fields.fail("there is no answer of type \"{}\"", type);
    if (fields.problem())
        return Error{*fields.problem()};
    Answer answer =
        answer_readers.at(static_cast<std::size_t>(known - request_types.begin()))(fields);
    if (fields.problem())
        return Error{*fields.problem()};
    return answer;
}

Result<void> check_name(std::string_view what, std::string_view name) {
    const bool printable = std::ranges::none_of(
        name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    if (name.empty() || name.size() > name_bytes_max || !printable) {
        return Error{fmt::format("{} must have 1 to {} bytes, without control characters", what,
                                 name_bytes_max)};
    }
    return {};
}

}  // namespace mercury::hints
