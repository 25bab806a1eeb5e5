// SPDX-License-Identifier: MIT
#include "daemon/session.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "hints/sockets.hpp"

namespace mercury::daemon {
namespace {

using hints::Answer;
using hints::Code;
using hints::Failure;

constexpr const char* job_first = "a job comes first";

std::vector<hints::JobClass> classes_of(const std::vector<PlannedClass>& plan) {
    std::vector<hints::JobClass> classes;
    for (const PlannedClass& planned : plan) {
        classes.push_back(
            {planned.layers.first, planned.layers.last, planned.mark,
             static_cast<unsigned>(hints::priority_of_class(classes.size(), plan.size())),
             planned.deadline});
    }
    return classes;
}

}  // namespace

Marking marking_of_class(const std::vector<PlannedClass>& plan, std::size_t index,
                         const DscpOfClass& dscp) {
    Marking marking{plan[index].mark, hints::priority_of_class(index, plan.size()), {}, {}};
    if (!dscp.empty())
        marking.dscp = dscp[std::min(index, dscp.size() - 1)];
    return marking;
}

Session::~Session() {
    if (member_ != nullptr)
        registry_.leave(*member_);
}

Session::Reply Session::handle(const hints::Request& request, std::size_t descriptors,
                               Clock::time_point now) {
    const std::string type(hints::type_of(request));
    const auto refuse = [&type](Code code, std::string message) -> Reply {
        return Answer(Failure{code, std::move(message), type, {}});
    };
    if (!greeted_ && !std::holds_alternative<hints::Hello>(request))
        return refuse(Code::Order, "a hello comes first");
    const std::size_t wanted = std::holds_alternative<hints::Assign>(request) ? 1 : 0;
    if (descriptors != wanted) {
        return refuse(Code::Descriptor,
                      fmt::format("{} comes with {} descriptor{}, not with {}", type,
                                  wanted == 0 ? "no" : "one", wanted == 0 ? "s" : "", descriptors));
    }
    Reply reply = std::visit([&](const auto& one) { return on(one, now); }, request);
    if (auto* const answer = std::get_if<Answer>(&reply)) {
        if (auto* const failure = std::get_if<Failure>(answer))
            failure->request = type;
    }
    return reply;
}

Session::Reply Session::on(const hints::Hello& hello, Clock::time_point /*now*/) {
    if (greeted_)
        return Answer(Failure{Code::Order, "there has been a hello", "", {}});
    if (std::ranges::find(hints::versions, hello.version) == hints::versions.end()) {
        return Answer(Failure{Code::Version,
                              fmt::format("version {} is not spoken here, but {}", hello.version,
                                          fmt::join(hints::versions, ", ")),
                              "",
                              {hints::versions.begin(), hints::versions.end()}});
    }
    greeted_ = true;
    return Answer(hints::Welcome{hello.version, fmt::format("mercuryd {}", MERCURY_VERSION)});
}

Session::Reply Session::on(const hints::DeclareJob& job, Clock::time_point /*now*/) {
    const auto declared = registry_.declare(user_, job, member_);
    if (const auto* const failure = std::get_if<Failure>(&declared))
        return Answer(*failure);
    member_ = std::get<Member*>(declared);
    return Answer(hints::JobDeclared{member_->job->number, classes_of(member_->plan),
                                     member_->job->has_option});
}

Session::Reply Session::on(const hints::Assign& assign, Clock::time_point /*now*/) {
    if (member_ == nullptr)
        return Answer(Failure{Code::Order, job_first, "", {}});
    const std::size_t layers = member_->profile.layers.size();
    if (assign.layer >= layers) {
        return Answer(Failure{Code::Layer,
                              fmt::format("the job has layers 0 to {}, and none of number {}",
                                          layers - 1, assign.layer),
                              "",
                              {}});
    }
    if (user_.sockets >= user_.limits().sockets) {
        return Answer(Failure{Code::Limit,
                              fmt::format("user {} has {} sockets assigned, as many as are allowed",
                                          user_.uid, user_.sockets),
                              "",
                              {}});
    }
    marking_ = assign.layer;
    const std::size_t index = class_of_layer(member_->plan, assign.layer);
    Marking marking = marking_of_class(member_->plan, index, dscp_);
    marking.lowat = assign.lowat;
    return marking;
}

hints::Answer Session::marked(const std::variant<Marked, Failure>& outcome) {
    if (const auto* const failure = std::get_if<Failure>(&outcome))
        return *failure;
    registry_.assigned(*member_, std::get<Marked>(outcome).cookie, marking_);
    const std::size_t index = class_of_layer(member_->plan, marking_);
    return hints::Assigned{index, member_->plan[index].mark};
}

Session::Reply Session::on(const hints::Step& /*step*/, Clock::time_point now) {
    if (member_ == nullptr)
        return Answer(Failure{Code::Order, job_first, "", {}});
    registry_.step(*member_, now);
    return Answer(hints::Stepped{});
}

Session::Reply Session::on(const hints::QueryStatus& /*query*/, Clock::time_point /*now*/) {
    return Answer(status_(user_.uid));
}

Session::Reply Session::on(const hints::Bye& /*bye*/, Clock::time_point /*now*/) {
    return Answer(hints::Goodbye{});
}

}  // namespace mercury::daemon
