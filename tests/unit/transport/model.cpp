// SPDX-License-Identifier: MIT
#include "model.hpp"

#include <algorithm>
#include <stdexcept>

namespace mercury::transport::test {

Model::Model(ElementType type, Reduction reduction, SumOrder order, std::size_t elements,
             std::size_t workers)
    : type_(type), reduction_(reduction), order_(order), elements_(elements), workers_(workers) {}

// There is memory for one round: element INDEX lies where the same one of the round before lay,
// which everybody must have.
bool Model::may_write(std::size_t worker, std::uint64_t index) const {
    if (order_ == SumOrder::rank && worker > 0 && workers_[worker - 1].elements <= index)
        return false;
    return index < elements_ || std::ranges::all_of(workers_, [&](const Worker& other) {
               return other.pulled >= (index - elements_ + 1) * size_of(type_);
           });
}

std::size_t Model::room(std::size_t worker) const {
    const Worker& self = workers_[worker];
    const std::uint64_t round = self.elements / elements_;
    std::uint64_t index = self.elements;
    while (index / elements_ == round && may_write(worker, index))
        ++index;
    return (index - self.elements) * size_of(type_) - self.begun.size();
}

void Model::add(std::size_t worker, std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
        std::vector<std::byte>& begun = workers_[worker].begun;
        begun.push_back(byte);
        if (begun.size() == size_of(type_)) {
            add_element(worker, load(type_, begun));
            begun.clear();
        }
    }
}

void Model::add_element(std::size_t worker, Bits bits) {
    const std::uint64_t index = workers_[worker].elements++;
    Element& element = sums_[index];
    const auto value = static_cast<float>(value_of(type_, bits));
    if (order_ == SumOrder::rank && element.workers != worker)
        throw std::logic_error("not in rank order");
    element.sum = element.workers == 0 ? value : element.sum + value;
    if (++element.workers < workers_.size())
        return;
    const float factor = 1.0F / static_cast<float>(workers_.size());
    const float result = reduction_ == Reduction::mean ? element.sum * factor : element.sum;
    element.result = nearest(type_, result);
}

const Model::Element* Model::find(std::uint64_t index) const {
    const auto found = sums_.find(index);
    return found != sums_.end() && found->second.workers == workers_.size() ? &found->second
                                                                            : nullptr;
}

std::size_t Model::ready(std::size_t worker) const {
    const std::uint64_t pulled = workers_[worker].pulled;
    const std::uint64_t first = pulled / size_of(type_);
    std::uint64_t index = first;
    while (index / elements_ == first / elements_ && find(index) != nullptr)
        ++index;
    return index == first ? 0 : index * size_of(type_) - pulled;
}

bool Model::agrees(std::size_t worker, std::span<const std::byte> found) const {
    const std::size_t size = size_of(type_);
    std::uint64_t position = workers_[worker].pulled;
    while (!found.empty()) {
        const Element* const element = find(position / size);
        if (element == nullptr)
            return false;
        const std::size_t offset = position % size;
        const auto part = found.first(std::min(size - offset, found.size()));
        if (!is_nan(type_, element->result)) {
            std::vector<std::byte> expected(size);
            save(type_, element->result, expected);
            if (!std::ranges::equal(part, std::span(expected).subspan(offset, part.size())))
                return false;
        } else if (part.size() == size && !is_nan(type_, load(type_, part))) {
            return false;
        }
        found = found.subspan(part.size());
        position += part.size();
    }
    return true;
}

void Model::take(std::size_t worker, std::size_t bytes) {
    workers_[worker].pulled += bytes;
    const auto slowest = std::ranges::min(workers_, {}, &Worker::pulled).pulled;
    sums_.erase(sums_.begin(), sums_.lower_bound(slowest / size_of(type_)));
}

std::uint64_t Model::pushed(std::size_t worker) const {
    return workers_[worker].elements * size_of(type_);
}

}  // namespace mercury::transport::test
