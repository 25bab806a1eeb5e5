// SPDX-License-Identifier: MIT
#include "daemon/metrics.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "netlink/histogram.hpp"
#include "netlink/options.hpp"

namespace mercury::daemon {
namespace {

using netlink::Class;
using netlink::Counter;
using netlink::DeviceState;
using netlink::Option;
using netlink::QdiscState;
using netlink::Statistics;
using netlink::Unit;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Not "job", which is Prometheus' own for what it asks.
constexpr const char* job_label = "job_number";

constexpr double infinity = std::numeric_limits<double>::infinity();

double seconds(netlink::Time time) {
    return std::chrono::duration<double>(time).count();
}

/// Whatever it is, as Prometheus' text must be.
std::string utf8(const std::string& text) {
    using Json = nlohmann::json;
    return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string_view suffix(Unit unit) {
    switch (unit) {
        case Unit::Bytes:
            return "_bytes";
        case Unit::BytesPerSecond:
            return "_bytes_per_second";
        case Unit::Nanoseconds:
            return "_seconds";
        case Unit::Percent:
            return "_ratio";
        default:
            return "";
    }
}

double in_base_unit(Unit unit, std::uint64_t value) {
    if (unit == Unit::Nanoseconds)
        return seconds(netlink::Time{value});
    return static_cast<double>(value) / (unit == Unit::Percent ? 100 : 1);
}

/// The families of an answer, by name.
class Families {
  public:
    void counter(std::string name, std::string_view help, double value, const Labels& labels = {}) {
        add(std::move(name) + "_total", help, MetricType::Counter, labels).counter.value = value;
    }
    void gauge(std::string name, std::string_view help, double value, const Labels& labels = {}) {
        add(std::move(name), help, MetricType::Gauge, labels).gauge.value = value;
    }
    ClientMetric::Histogram& histogram(std::string name, std::string_view help,
                                       const Labels& labels) {
        return add(std::move(name), help, MetricType::Histogram, labels).histogram;
    }
    std::vector<MetricFamily> all() && {
        std::vector<MetricFamily> list;
        for (auto& [name, family] : families_)
            list.push_back(std::move(family));
        return list;
    }

  private:
    ClientMetric& add(std::string name, std::string_view help, MetricType type,
                      const Labels& labels) {
        MetricFamily& family = families_[name];
        family.name = std::move(name);
        family.help = help;
        family.type = type;
        family.metric.emplace_back().label = labels;
        return family.metric.back();
    }

    std::map<std::string, MetricFamily> families_;
};

// Qdiscs -----------------------------------------------------------------------------------------

void add_statistics(Families& families, const std::string& scope, const Statistics& statistics,
                    const Labels& labels) {
    const auto counter = [&](std::string_view name, std::string_view help, std::uint64_t value) {
        families.counter(fmt::format("{}_{}", scope, name), help, static_cast<double>(value),
                         labels);
    };
    counter("sent_bytes", "bytes sent", statistics.bytes);
    counter("sent_packets", "packets sent", statistics.packets);
    counter("drops", "packets dropped, for whatever reason", statistics.drops);
    counter("overlimits", "times that sending had to wait for the rate", statistics.overlimits);
    counter("requeues", "packets that the driver gave back", statistics.requeues);
    families.gauge(scope + "_backlog_bytes", "bytes queued",
                   static_cast<double>(statistics.backlog), labels);
    families.gauge(scope + "_qlen_packets", "packets queued", static_cast<double>(statistics.qlen),
                   labels);
}

/// The kernel counts packets by how long they waited, but does not add that up: there is no sum.
void add_sojourn(Families& families, const std::string& scope, netlink::Histogram counts,
                 const Labels& labels) {
    if (counts.empty())
        return;
    auto& histogram =
        families.histogram(scope + "_sojourn_seconds", "time that packets waited", labels);
    histogram.sample_sum = std::numeric_limits<double>::quiet_NaN();
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const auto below = netlink::upper_bound(counts, i);
        histogram.sample_count += counts[i];
        histogram.bucket.push_back({histogram.sample_count, below ? seconds(*below) : infinity});
    }
}

void add_mercury(Families& families, const std::string& scope,
                 const std::optional<netlink::MercuryStatistics>& statistics,
                 const Labels& labels) {
    if (!statistics)
        return;
    netlink::for_each_counter(*statistics, [&](const Counter& counter, const auto& field) {
        if (!field)
            return;
        const std::string name =
            fmt::format("{}_{}{}", scope, counter.metric, suffix(counter.unit));
        const double value = in_base_unit(counter.unit, netlink::number_of(*field));
        if (counter.is_gauge)
            families.gauge(name, counter.help, value, labels);
        else
            families.counter(name, counter.help, value, labels);
    });
    add_sojourn(families, scope, statistics->sojourn, labels);
}

/// For Visit of for_each_option(): what it is set to, infinite for "none".
auto option_adder(Families& families, const std::string& scope, const Labels& labels) {
    return [&families, scope, labels](const Option& option, const auto& field) {
        const bool is_number =
            option.unit != Unit::Mask && option.unit != Unit::Word && option.unit != Unit::Flag;
        if (!field || !is_number)
            return;
        const std::uint64_t value = netlink::number_of(*field);
        families.gauge(fmt::format("{}_config_{}{}", scope, option.name, suffix(option.unit)),
                       fmt::format("what {} is set to; infinite: none", option.name),
                       value == option.none ? infinity : in_base_unit(option.unit, value), labels);
    };
}

/// "" if no metrics are made of it.
std::string scope_of(const Class& one) {
    const auto& options = options_of(one);
    if (one.classid.minor() == MERCURY_MINOR_DEFAULT)
        return "mercury_default";
    if (!options.job)
        return "";
    return options.band ? "mercury_band" : "mercury_job";
}

void add_class(Families& families, const Class& one, Labels labels) {
    const std::string scope = scope_of(one);
    if (scope.empty())
        return;
    const auto& options = options_of(one);
    if (options.job)
        labels.push_back({job_label, fmt::format("{}", *options.job)});
    if (options.band)
        labels.push_back({"band", fmt::format("{}", *options.band)});
    add_statistics(families, scope, one.statistics, labels);
    add_mercury(families, scope, one.mercury, labels);
    netlink::for_each_class_option(options, option_adder(families, scope, labels));
}

void add_devices(Families& families, const netlink::Snapshot& snapshot) {
    std::size_t room = classes_in_metrics;
    std::size_t left_out = 0;
    for (const DeviceState& device : snapshot.devices) {
        for (const QdiscState& state : device.mercury) {
            const Labels labels{{"device", utf8(device.link.name)},
                                {"qdisc", to_string(state.qdisc.handle)}};
            add_statistics(families, "mercury_qdisc", state.qdisc.statistics, labels);
            add_mercury(families, "mercury_qdisc", state.qdisc.mercury, labels);
            if (state.qdisc.options)
                netlink::for_each_option(*state.qdisc.options,
                                         option_adder(families, "mercury_qdisc", labels));
            const std::size_t shown = std::min(room, state.classes.size());
            for (std::size_t i = 0; i < shown; ++i)
                add_class(families, state.classes[i], labels);
            room -= shown;
            left_out += state.classes.size() - shown;
        }
    }
    families.gauge("mercury_scrape_left_out_classes",
                   "jobs and bands that this answer has no room for",
                   static_cast<double>(left_out));
}

// The daemon -------------------------------------------------------------------------------------

void add_job(Families& families, const hints::Status::Job& job, bool job_names) {
    const Labels labels{{job_label, fmt::format("{}", job.number)}};
    Labels info = labels;
    info.push_back({"user", fmt::format("{}", job.user)});
    if (job_names)
        info.push_back({"name", job.name});
    families.gauge("mercury_hints_job_info", "1 for each job, by its number in the marks", 1, info);
    families.gauge("mercury_hints_job_clients", "connections of the job",
                   static_cast<double>(job.clients), labels);
    families.counter("mercury_hints_job_steps", "iterations that the job's clients have announced",
                     static_cast<double>(job.steps), labels);
    if (job.interval) {
        families.gauge("mercury_hints_job_interval_seconds",
                       "time from one iteration to the next, the median of the last nine",
                       std::chrono::duration<double>(*job.interval).count(), labels);
    }
    for (std::size_t i = 0; i < job.classes.size(); ++i) {
        Labels of_class = labels;
        of_class.push_back({"class", fmt::format("{}", i)});
        families.gauge("mercury_hints_job_sockets",
                       "sockets that were assigned to the class, until their connection ends",
                       static_cast<double>(job.classes[i].sockets), of_class);
    }
}

void add_hints(Families& families, const Counters& counters) {
    families.counter("mercury_hints_connections", "clients that have connected",
                     static_cast<double>(counters.connections));
    families.counter("mercury_hints_messages", "messages that were answered",
                     static_cast<double>(counters.messages));
    families.counter("mercury_hints_marked_sockets", "sockets that were marked",
                     static_cast<double>(counters.sockets));
    for (std::size_t i = 0; i < counters.requests.size(); ++i) {
        families.counter("mercury_hints_requests", "messages that were understood, by their type",
                         static_cast<double>(counters.requests.at(i)),
                         {{"type", std::string(hints::request_types.at(i))}});
    }
    for (std::size_t i = 0; i < counters.refusals.size(); ++i) {
        families.counter("mercury_hints_errors", "errors that were answered, by their code",
                         static_cast<double>(counters.refusals.at(i)),
                         {{"code", std::string(hints::code_names.at(i))}});
    }
}

void add_report(Families& families, const Report& report, bool job_names) {
    families.gauge("mercury_daemon_info", "1, and the version", 1, {{"version", MERCURY_VERSION}});
    families.gauge("mercury_daemon_uptime_seconds", "time since mercuryd was started",
                   static_cast<double>(report.status.uptime.count()));
    families.gauge("mercury_hints_clients", "clients that are connected",
                   static_cast<double>(report.status.clients));
    families.gauge("mercury_hints_jobs", "jobs that clients have declared",
                   static_cast<double>(report.status.jobs.size()));
    add_hints(families, report.hints);
    for (const auto& job : report.status.jobs)
        add_job(families, job, job_names);
    for (const auto& device : report.status.devices) {
        families.gauge("mercury_device_problem",
                       "1 if the device is not as configured, or does not hear the jobs' marks",
                       device.problem.empty() ? 0 : 1, {{"device", utf8(device.name)}});
    }
    families.counter("mercury_kernel_requests", "changes asked of the kernel",
                     static_cast<double>(report.kernel.requests));
    families.counter("mercury_kernel_errors", "those that it refused",
                     static_cast<double>(report.kernel.failures));
    families.counter("mercury_kernel_overruns", "times that events of the kernel were lost",
                     static_cast<double>(report.kernel.overruns));
}

}  // namespace

std::vector<MetricFamily> metric_families(const std::optional<netlink::Snapshot>& snapshot,
                                          const std::optional<Report>& report, bool job_names) {
    Families families;
    const auto success = [&families](const char* part, bool is_there) {
        families.gauge("mercury_scrape_success", "whether this part of the answer could be had",
                       is_there ? 1 : 0, {{"part", part}});
    };
    success("kernel", snapshot.has_value());
    success("daemon", report.has_value());
    if (snapshot)
        add_devices(families, *snapshot);
    if (report)
        add_report(families, *report, job_names);
    return std::move(families).all();
}

}  // namespace mercury::daemon
