// SPDX-License-Identifier: MIT
#include "daemon/metrics.hpp"

#include <atomic>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "daemon/metrics_server.hpp"
#include "netlink/fake_kernel.hpp"
#include "running_daemon.hpp"

#ifdef __SANITIZE_THREAD__
// The library for HTTP asks gmtime() in several threads at once. Nothing here asks it.
extern "C" const char* __tsan_default_suppressions() {
    return "race:gmtime";
}
#endif

using namespace mercury;
using namespace mercury::daemon;
using Catch::Matchers::Contains;
using netlink::FakeKernel;

namespace {

std::string text_of(const std::optional<netlink::Snapshot>& snapshot,
                    const std::optional<Report>& report, bool job_names = false) {
    return prometheus::TextSerializer().Serialize(metric_families(snapshot, report, job_names));
}

netlink::Class class_of(std::uint32_t minor, netlink::ClassOptions options) {
    netlink::Class one;
    one.classid = {0x10000 | minor};
    one.options = options;
    one.statistics = {.bytes = 3000, .packets = 3, .drops = 1, .backlog = 1500, .qlen = 1};
    one.mercury.emplace();
    one.mercury->missed = 2;
    one.mercury->lateness = netlink::Time{1'500'000'000};
    return one;
}

netlink::Snapshot snapshot_of(std::vector<netlink::Class> classes, std::string name = "eth0") {
    netlink::DeviceState device;
    device.link.name = std::move(name);
    netlink::Qdisc qdisc;
    qdisc.handle = {0x10000};
    qdisc.options = netlink::MercuryOptions{.rescue = 10, .rate = 125'000'000};
    qdisc.options->ce_threshold = netlink::no_time;
    qdisc.mercury.emplace();
    qdisc.mercury->memory = 4096;
    device.mercury.push_back({qdisc, std::move(classes)});
    return {Clock::now(), {device}};
}

Report report_of(const std::string& job) {
    Report report;
    auto& one = report.status.jobs.emplace_back();
    one.number = 3;
    one.name = job;
    one.user = 1000;
    one.steps = 40;
    one.classes.push_back({0x30001, 4, {}});
    report.hints.refusals.at(static_cast<std::size_t>(hints::Code::Busy)) = 7;
    report.kernel.failures = 5;
    return report;
}

/// What a server says to TEXT; "" if it hangs up.
std::string http(int port, std::string_view text) {
    const Fd client = tcp_socket();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    REQUIRE(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(send(client.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(text.size()));
    std::string answer;
    char part[4096];
    for (ssize_t got = 0; (got = recv(client.get(), part, sizeof(part), 0)) > 0;)
        answer.append(part, static_cast<std::size_t>(got));
    return answer;
}

constexpr const char* scrape = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// In a thread of its own, as the daemon's is; over a device "eth0".
class RunningServer {
  public:
    RunningServer() {
        std::promise<int> listens;
        thread_ = std::thread([this, &listens] {
            MetricsServer server(
                reactor_,
                []() -> Result<std::unique_ptr<netlink::Kernel>> {
                    auto kernel = std::make_unique<FakeKernel>();
                    netlink::Link link;
                    link.index = 2;
                    link.name = "eth0";
                    kernel->put(link);
                    if (!kernel->apply(netlink::QdiscRequest{.ifindex = 2, .handle = {0x10000}}))
                        return Error{"no qdisc"};
                    return std::unique_ptr<netlink::Kernel>(std::move(kernel));
                },
                [this] {
                    ++reports;
                    return report_of("net");
                });
            const auto given = server.listen({});
            listens.set_value(given && inbox_.attach(reactor_) ? given.value() : 0);
            if (!reactor_.run())
                std::abort();
        });
        port = listens.get_future().get();
        REQUIRE(port != 0);
    }
    RunningServer(const RunningServer&) = delete;
    RunningServer& operator=(const RunningServer&) = delete;
    ~RunningServer() { stop(); }

    void stop() {
        inbox_.post([this] { reactor_.stop(); });
        if (thread_.joinable())
            thread_.join();
    }

    int port = 0;
    std::atomic<int> reports = 0;

  private:
    Reactor reactor_;
    Inbox inbox_;
    std::thread thread_;
};

}  // namespace

TEST_CASE("a band has what tc shows of it", "[metrics]") {
    auto band = class_of(3, {.job = 0, .band = 2, .deadline = netlink::Time{2'000'000}});
    band.mercury->sojourn = {4, 2, 1};
    const std::string text = text_of(snapshot_of({band}), {});
    const std::string labels = R"({device="eth0",qdisc="1:",job_number="0",band="2"})";
    for (const char* const line :
         {"mercury_band_sent_bytes_total{} 3000\n", "mercury_band_sent_packets_total{} 3\n",
          "mercury_band_drops_total{} 1\n", "mercury_band_backlog_bytes{} 1500\n",
          "mercury_band_qlen_packets{} 1\n", "mercury_band_deadline_missed_packets_total{} 2\n",
          "mercury_band_lateness_seconds_total{} 1.5\n",
          "mercury_band_config_deadline_seconds{} 0.002\n",
          "mercury_band_sojourn_seconds_count{} 7\n"})
        CHECK_THAT(text, Contains(fmt::format(fmt::runtime(line), labels)));
    CHECK_THAT(text, Contains(R"(band="2",le="1.024e-06"} 4)"));
    CHECK_THAT(text, Contains(R"(band="2",le="2.048e-06"} 6)"));
    CHECK_THAT(text, Contains(R"(band="2",le="+Inf"} 7)"));
    CHECK_THAT(text, Contains("mercury_band_sojourn_seconds_sum" + labels + " Nan"));
    CHECK_THAT(text, Contains("# TYPE mercury_band_sojourn_seconds histogram"));
}

TEST_CASE("jobs, the default class and the qdisc are apart from bands", "[metrics]") {
    const std::string text =
        text_of(snapshot_of({class_of(0xfc03, {.job = 3, .weight = 2}), class_of(0xffff, {})}), {});
    CHECK_THAT(text,
               Contains(R"(mercury_job_config_weight{device="eth0",qdisc="1:",job_number="3"} 2)"));
    CHECK_THAT(text, Contains(R"(mercury_default_sent_packets_total{device="eth0",qdisc="1:"} 3)"));
    CHECK_THAT(text, Contains(R"(mercury_qdisc_memory_bytes{device="eth0",qdisc="1:"} 4096)"));
    CHECK_THAT(text, Contains("mercury_qdisc_config_rate_bytes_per_second{device=\"eth0\","
                              "qdisc=\"1:\"} 125000000"));
    CHECK_THAT(text,
               Contains(R"(mercury_qdisc_config_rescue_ratio{device="eth0",qdisc="1:"} 0.1)"));
    CHECK_THAT(text, Contains("mercury_qdisc_config_ce_threshold_seconds{device=\"eth0\","
                              "qdisc=\"1:\"} +Inf"));
    CHECK_THAT(text, !Contains("mercury_band_"));
}

TEST_CASE("what clients chose is no label unless that is wanted", "[metrics]") {
    const std::string quiet = text_of({}, report_of("vgg \"16\""));
    CHECK_THAT(quiet, !Contains("vgg"));
    CHECK_THAT(quiet, Contains(R"(mercury_hints_job_info{job_number="3",user="1000"} 1)"));
    CHECK_THAT(quiet, Contains(R"(mercury_hints_job_steps_total{job_number="3"} 40)"));
    CHECK_THAT(quiet, Contains(R"(mercury_hints_job_sockets{job_number="3",class="0"} 4)"));
    CHECK_THAT(quiet, Contains(R"(mercury_hints_errors_total{code="busy"} 7)"));
    CHECK_THAT(quiet, Contains(R"(mercury_hints_errors_total{code="limit"} 0)"));
    CHECK_THAT(quiet, Contains("mercury_kernel_errors_total 5"));
    CHECK_THAT(text_of({}, report_of("vgg \"16\""), true), Contains(R"(name="vgg \"16\"")"));
}

TEST_CASE("what cannot be had is said, and the rest is there", "[metrics]") {
    const std::string text = text_of({}, report_of("net"));
    CHECK_THAT(text, Contains(R"(mercury_scrape_success{part="kernel"} 0)"));
    CHECK_THAT(text, Contains(R"(mercury_scrape_success{part="daemon"} 1)"));
    CHECK_THAT(text_of(snapshot_of({}), {}),
               Contains(R"(mercury_scrape_success{part="daemon"} 0)"));
}

TEST_CASE("there are no more bands in an answer than it has room for", "[metrics]") {
    std::vector<netlink::Class> bands;
    for (std::uint32_t band = 0; band < classes_in_metrics + 5; ++band)
        bands.push_back(class_of(band + 1, {.job = 0, .band = band}));
    const std::string text = text_of(snapshot_of(bands), {});
    CHECK_THAT(text, Contains("mercury_scrape_left_out_classes 5"));
    CHECK_THAT(text, Contains(fmt::format("band=\"{}\"", classes_in_metrics - 1)));
    CHECK_THAT(text, !Contains(fmt::format("band=\"{}\"", classes_in_metrics)));
}

TEST_CASE("a device may have any name", "[metrics]") {
    CHECK_THAT(text_of(snapshot_of({}, "a\"\\\xff"), {}),
               Contains("device=\"a\\\"\\\\\xef\xbf\xbd\""));
}

TEST_CASE("metrics are served", "[metrics][server]") {
    RunningServer server;
    const std::string answer = http(server.port, scrape);
    CHECK_THAT(answer, Contains("200 OK"));
    CHECK_THAT(answer, Contains("mercury_hints_job_steps_total{job_number=\"3\"} 40"));
    CHECK_THAT(answer, Contains("mercury_qdisc_sent_bytes_total{device=\"eth0\",qdisc=\"1:\"} 0"));
    CHECK_THAT(http(server.port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), Contains("404"));
    CHECK_THAT(http(server.port, "nonsense\r\n\r\n"), !Contains("mercury"));
}

TEST_CASE("who asks all the time asks the daemon seldom", "[metrics][server]") {
    RunningServer server;
    const auto begin = Clock::now();
    for (int i = 0; i < 50; ++i)
        REQUIRE_THAT(http(server.port, scrape), Contains("200 OK"));
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(Clock::now() - begin);
    CHECK(server.reports <= 1 + seconds.count());
}

TEST_CASE("clients that never finish keep neither the reactor nor the end waiting",
          "[metrics][server]") {
    RunningServer server;
    std::vector<Fd> clients;
    for (int i = 0; i < 40; ++i) {
        clients.push_back(tcp_socket());
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(static_cast<std::uint16_t>(server.port));
        REQUIRE(connect(clients.back().get(), reinterpret_cast<sockaddr*>(&address),
                        sizeof(address)) == 0);
        REQUIRE(send(clients.back().get(), "GET /met", 8, MSG_NOSIGNAL) == 8);
    }
    server.stop();  // comes back although nobody hangs up
}

TEST_CASE("an answer that waits for the reactor ends when the server does", "[metrics][server]") {
    Reactor reactor;  // that nobody runs
    std::promise<void> asked;
    auto server = std::make_unique<MetricsServer>(
        reactor,
        [&asked]() -> Result<std::unique_ptr<netlink::Kernel>> {
            asked.set_value();
            return Error{"no kernel"};
        },
        [] { return Report{}; });
    const auto port = server->listen({});
    REQUIRE(port);
    std::string answer;
    std::thread client([&] { answer = http(port.value(), scrape); });
    asked.get_future().get();
    server.reset();
    client.join();
    CHECK_THAT(answer, Contains("mercury_scrape_success{part=\"daemon\"} 0"));
}

TEST_CASE("a port that is taken is an error, and names it", "[metrics][server]") {
    const RunningServer first;
    Reactor reactor;
    MetricsServer second(
        reactor, []() -> Result<std::unique_ptr<netlink::Kernel>> { return Error{"none"}; },
        [] { return Report{}; });
    const auto port =
        second.listen({.address = "127.0.0.1", .port = static_cast<std::uint16_t>(first.port)});
    REQUIRE_FALSE(port);
    CHECK_THAT(port.error().message, Contains(fmt::format("127.0.0.1:{}", first.port)));
}
