// SPDX-License-Identifier: MIT
#include "daemon/session.hpp"

#include <catch2/catch.hpp>

#include "running_daemon.hpp"

using namespace mercury;
using namespace mercury::daemon;
using namespace mercury::hints;

namespace {

struct Conversation {
    Limits limits;
    DscpOfClass dscp;
    Registry registry{16, [](unsigned /*number*/, const Deadlines& /*deadlines*/) {}};
    User user{1000, limits};
    Session::StatusSource status = [](std::uint32_t uid) {
        Status answer;
        answer.daemon = std::to_string(uid);
        return answer;
    };
    Session session{user, registry, dscp, status};

    Session::Reply say(const Request& request, std::size_t descriptors = 0) {
        return session.handle(request, descriptors, Clock::time_point{});
    }
    Answer ask(const Request& request, std::size_t descriptors = 0) {
        auto reply = say(request, descriptors);
        REQUIRE(std::holds_alternative<Answer>(reply));
        return std::get<Answer>(reply);
    }
    void begin() {
        REQUIRE(std::holds_alternative<Welcome>(ask(Hello{1, "test"})));
        REQUIRE(std::holds_alternative<JobDeclared>(ask(four_layers())));
    }
    Marking assign(std::size_t layer) {
        auto reply = say(Assign{layer, {}}, 1);
        REQUIRE(std::holds_alternative<Marking>(reply));
        return std::get<Marking>(reply);
    }
};

}  // namespace

TEST_CASE("nothing comes before a hello", "[session]") {
    for (const Request& request : std::initializer_list<Request>{four_layers(), Assign{0, {}},
                                                                 Step{}, QueryStatus{}, Bye{}}) {
        Conversation talk;
        const auto answer = talk.ask(request);
        CHECK(code_of(answer) == Code::Order);
        CHECK(std::get<Failure>(answer).request == type_of(request));
    }
}

TEST_CASE("another version is refused with those that are spoken, and may be followed by one",
          "[session]") {
    Conversation talk;
    const auto answer = talk.ask(Hello{2, "test"});
    CHECK(code_of(answer) == Code::Version);
    CHECK(std::get<Failure>(answer).versions == std::vector<unsigned>{1});
    CHECK(code_of(talk.ask(Step{})) == Code::Order);
    CHECK(std::holds_alternative<Welcome>(talk.ask(Hello{1, "test"})));
    CHECK(code_of(talk.ask(Hello{1, "test"})) == Code::Order);
}

TEST_CASE("assign and step need a job", "[session]") {
    Conversation talk;
    talk.ask(Hello{1, "test"});
    CHECK(code_of(talk.ask(Assign{0, {}}, 1)) == Code::Order);
    CHECK(code_of(talk.ask(Step{})) == Code::Order);
    CHECK(std::holds_alternative<Status>(talk.ask(QueryStatus{})));
    CHECK(std::holds_alternative<Goodbye>(talk.ask(Bye{})));
}

TEST_CASE("an assign has one descriptor, and nothing else has any", "[session]") {
    Conversation talk;
    CHECK(code_of(talk.ask(Hello{1, "test"}, 1)) == Code::Descriptor);
    talk.begin();
    CHECK(code_of(talk.ask(Assign{0, {}}, 0)) == Code::Descriptor);
    CHECK(code_of(talk.ask(Assign{0, {}}, 2)) == Code::Descriptor);
    CHECK(code_of(talk.ask(Step{}, 1)) == Code::Descriptor);
    CHECK(code_of(talk.ask(four_layers(), 1)) == Code::Descriptor);
    CHECK(code_of(talk.ask(Bye{}, 1)) == Code::Descriptor);
}

TEST_CASE("a layer that the job does not have is refused", "[session]") {
    Conversation talk;
    talk.begin();
    CHECK(code_of(talk.ask(Assign{4, {}}, 1)) == Code::Layer);
    CHECK(code_of(talk.ask(Assign{1023, {}}, 1)) == Code::Layer);
}

TEST_CASE("a socket gets what its class has", "[session]") {
    Conversation talk;
    talk.dscp = {34, 10};
    talk.begin();
    const Marking first = talk.assign(1);
    CHECK(first.mark == 0x10001);
    CHECK(first.priority == 1);
    CHECK(first.dscp == std::uint8_t{34});
    CHECK(talk.assign(2).mark == 0x10002);
    CHECK(talk.assign(2).dscp == std::uint8_t{10});
    CHECK(talk.session.marked(Marked{77}) == Answer(Assigned{1, 0x10002}));
    CHECK(talk.user.sockets == 1);
}

TEST_CASE("classes behind the last DSCP have that one", "[session]") {
    Conversation talk;
    talk.dscp = {34};
    talk.begin();
    CHECK(talk.assign(3).dscp == std::uint8_t{34});
}

TEST_CASE("what could not be marked does not count", "[session]") {
    Conversation talk;
    talk.begin();
    talk.assign(0);
    CHECK(code_of(talk.session.marked(Failure{Code::Busy, "", "", {}})) == Code::Busy);
    CHECK(talk.user.sockets == 0);
}

TEST_CASE("sockets are limited for each user", "[session]") {
    Conversation talk;
    talk.limits.sockets = 2;
    talk.begin();
    for (const std::uint64_t cookie : {1U, 2U}) {
        talk.assign(0);
        talk.session.marked(Marked{cookie});
    }
    CHECK(code_of(talk.ask(Assign{0, {}}, 1)) == Code::Limit);
}

TEST_CASE("who hangs up leaves nothing", "[session]") {
    Limits limits;
    const DscpOfClass dscp;
    const Session::StatusSource status;
    Registry registry(16, [](unsigned /*number*/, const Deadlines& /*deadlines*/) {});
    User user(1000, limits);
    {
        Session session(user, registry, dscp, status);
        session.handle(Hello{1, "test"}, 0, {});
        session.handle(four_layers(), 0, {});
        session.handle(Assign{0, {}}, 1, {});
        session.marked(Marked{1});
        CHECK(registry.jobs().size() == 1);
    }
    CHECK(registry.jobs().empty());
    CHECK(user.jobs == 0);
    CHECK(user.layers == 0);
    CHECK(user.sockets == 0);
}

TEST_CASE("status is asked for the user that asks", "[session]") {
    Conversation talk;
    talk.ask(Hello{1, "test"});
    CHECK(std::get<Status>(talk.ask(QueryStatus{})).daemon == "1000");
}
