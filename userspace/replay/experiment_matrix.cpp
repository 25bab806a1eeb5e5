// SPDX-License-Identifier: MIT
#include "replay/experiment_matrix.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

std::string last_part(std::string_view key) {
    return std::string(key.substr(key.rfind('.') + 1));
}

/// What of a sweep the name of its entry does not say: "partition=1mb" for "p3 partition=1mb" in
/// p3.
std::string variant_of(const std::string& entry, const std::vector<Choice>& choices) {
    std::string variant;
    for (const Choice& choice : choices) {
        std::string_view label = choice.label;
        if (label.starts_with(entry + " "))
            label.remove_prefix(entry.size() + 1);
        variant += fmt::format("{}{}", variant.empty() ? "" : ", ", label);
    }
    return variant;
}

/// A list in [qdiscs] is one qdisc with its filters, not several values.
std::pair<SettingTable, SettingTable> split_off_qdiscs(const SettingTable& table) {
    std::pair<SettingTable, SettingTable> parts;
    for (const SettingEntry& entry : table)
        (entry.key == "qdiscs" ? parts.second : parts.first).push_back(entry);
    return parts;
}

/// The lists outside of the matrix.
Result<std::vector<Combination>> plain_dimensions(const SettingTable& file) {
    const auto [settings, qdiscs] = split_off_qdiscs(file);
    const auto chosen = combinations(settings);
    if (!chosen)
        return chosen.error();
    std::vector<Combination> all;
    for (const Chosen& one : chosen.value()) {
        Combination combination{one.settings, {}, {}};
        merge(combination.settings, qdiscs);
        for (const Choice& choice : one.choices) {
            const auto same_name = std::count_if(
                one.choices.begin(), one.choices.end(),
                [&](const Choice& other) { return last_part(other.key) == last_part(choice.key); });
            combination.labels.emplace_back(same_name > 1 ? choice.key : last_part(choice.key),
                                            choice.label);
        }
        all.push_back(std::move(combination));
    }
    return all;
}

/// One entry of a dimension of the matrix, with what its own lists make of it.
struct Entry {
    std::string name;
    std::vector<Chosen> forms;
};

class MatrixReader {
  public:
    explicit MatrixReader(Problems& problems) : problems_(problems) {}

    std::vector<Entry> read(const std::string& dimension, const Setting& setting) {
        const std::string key = "matrix." + dimension;
        std::vector<Entry> entries;
        if (setting.list() == nullptr) {
            problems_.add(setting.line, key,
                          fmt::format("must be a list of tables: [[{}]] for each", key));
            return entries;
        }
        for (const Setting& item : *setting.list()) {
            if (auto entry = read_entry(key, item))
                entries.push_back(std::move(*entry));
        }
        check_names(key, setting.line, entries);
        return entries;
    }

  private:
    std::optional<Entry> read_entry(const std::string& key, const Setting& item) {
        if (item.table() == nullptr) {
            problems_.add(item.line, key, "must be a table with a name");
            return {};
        }
        SettingReader reader(*item.table(), key, item.line, problems_);
        reader.require("name", "what the cases of this entry are called");
        Entry entry{reader.text("name", "?"), {}};
        reader.finish(case_keys());
        SettingTable rest;
        for (const SettingEntry& setting : *item.table()) {
            if (setting.key != "name")
                rest.push_back(setting);
        }
        const auto [settings, qdiscs] = split_off_qdiscs(rest);
        auto forms = combinations(settings);
        if (!forms) {
            problems_.add(item.line, key, forms.error().message);
            return {};
        }
        entry.forms = std::move(forms).value();
        for (Chosen& form : entry.forms)
            merge(form.settings, qdiscs);
        return entry;
    }

    void check_names(const std::string& key, std::size_t line, const std::vector<Entry>& entries) {
        for (std::size_t i = 0; i < entries.size(); ++i) {
            for (std::size_t j = 0; j < i; ++j) {
                if (entries[i].name == entries[j].name)
                    problems_.add(line, key,
                                  fmt::format("two entries are called \"{}\"", entries[i].name));
            }
        }
    }

    Problems& problems_;
};

std::vector<Combination> with_dimension(const std::vector<Combination>& all,
                                        const std::string& dimension,
                                        const std::vector<Entry>& entries) {
    std::vector<Combination> longer;
    for (const Combination& before : all) {
        for (const Entry& entry : entries) {
            for (const Chosen& form : entry.forms) {
                Combination next = before;
                merge(next.settings, form.settings);
                next.labels.emplace_back(dimension, entry.name);
                const std::string variant = variant_of(entry.name, form.choices);
                if (!variant.empty())
                    next.variant += (next.variant.empty() ? "" : ", ") + variant;
                longer.push_back(std::move(next));
            }
        }
    }
    return longer;
}

}  // namespace

const std::vector<std::string>& case_keys() {
    static const std::vector<std::string> keys{"network", "job",          "jobs",  "background",
                                               "run",     "rate_changes", "qdiscs"};
    return keys;
}

Result<std::vector<Combination>> all_combinations(const SettingTable& file, Problems& problems) {
    SettingTable plain;
    SettingTable matrix;
    for (const SettingEntry& entry : file) {
        if (entry.key != "matrix") {
            if (std::ranges::find(case_keys(), entry.key) != case_keys().end())
                plain.push_back(entry);
        } else if (entry.setting.table() != nullptr) {
            matrix = *entry.setting.table();
        } else {
            problems.add(entry.setting.line, "matrix", "must be [[matrix.DIMENSION]]");
        }
    }
    auto all = plain_dimensions(plain);
    if (!all)
        return all;
    std::vector<Combination> combined = std::move(all).value();
    for (const SettingEntry& dimension : matrix) {
        combined = with_dimension(combined, dimension.key,
                                  MatrixReader(problems).read(dimension.key, dimension.setting));
    }
    return combined;
}

}  // namespace mercury::replay
