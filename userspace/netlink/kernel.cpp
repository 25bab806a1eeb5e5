// SPDX-License-Identifier: MIT
#include "netlink/kernel.hpp"

#include <memory>
#include <optional>
#include <utility>

namespace mercury::netlink {
namespace {

/// Calls ASK(done) and waits for the answer.
template <typename T, typename Ask>
Result<T> await(Kernel& kernel, Ask ask) {
    // Shared, since after an error the kernel still has DONE.
    const auto answer = std::make_shared<std::optional<Result<T>>>();
    ask([answer](Result<T> result) { answer->emplace(std::move(result)); });
    while (!answer->has_value()) {
        if (auto waited = kernel.wait(); !waited)
            return waited.error();
    }
    return std::move(**answer);
}

}  // namespace

Result<std::vector<Link>> Kernel::links() {
    return await<std::vector<Link>>(*this, [&](auto done) { get_links(std::move(done)); });
}

Result<std::vector<Qdisc>> Kernel::qdiscs() {
    return await<std::vector<Qdisc>>(*this, [&](auto done) { get_qdiscs(std::move(done)); });
}

Result<std::vector<Class>> Kernel::classes(int ifindex, Handle qdisc) {
    return await<std::vector<Class>>(
        *this, [&](auto done) { get_classes(ifindex, qdisc, std::move(done)); });
}

Result<void> Kernel::apply(const QdiscRequest& request) {
    return await<void>(*this, [&](auto done) { set(request, std::move(done)); });
}

Result<void> Kernel::apply(const ClassRequest& request) {
    return await<void>(*this, [&](auto done) { set(request, std::move(done)); });
}

}  // namespace mercury::netlink
