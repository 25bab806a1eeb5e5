// SPDX-License-Identifier: MIT
#include "config/settings.hpp"

#include <algorithm>
#include <sstream>

#include <toml++/toml.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mercury {
namespace {

/// Enough to mend a file, few enough to read.
constexpr std::size_t problems_shown = 10;
/// A sweep beyond this is a slip of the pen.
constexpr std::size_t combinations_max = 10'000;

const SettingTable empty_table;

Setting convert(const toml::node& node);

SettingTable convert_table(const toml::table& table) {
    std::vector<std::pair<toml::source_position, SettingEntry>> entries;
    for (const auto& [key, node] : table)
        entries.push_back({key.source().begin, {std::string(key.str()), convert(node)}});
    // toml++ sorts them by name.
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    SettingTable converted;
    for (auto& entry : entries)
        converted.push_back(std::move(entry.second));
    return converted;
}

Setting convert(const toml::node& node) {
    Setting setting;
    setting.line = node.source().begin.line;
    if (const auto* table = node.as_table()) {
        setting.value = convert_table(*table);
    } else if (const auto* array = node.as_array()) {
        Setting::List list;
        for (const auto& item : *array)
            list.push_back(convert(item));
        setting.value = std::move(list);
    } else if (const auto* flag = node.as_boolean()) {
        setting.value = flag->get();
    } else if (const auto* whole = node.as_integer()) {
        setting.value = whole->get();
    } else if (const auto* number = node.as_floating_point()) {
        setting.value = number->get();
    } else if (const auto* text = node.as_string()) {
        setting.value = text->get();
    } else {
        std::ostringstream date;  // no setting is a date: it is refused as a text
        date << toml::default_formatter(node);
        setting.value = date.str();
    }
    return setting;
}

/// "a={1,2} b={3,4}" is four texts. Nothing, if there are no braces.
std::vector<std::string> expand_braces(const std::string& text) {
    const auto open = text.find('{');
    const auto close = text.find('}', open);
    if (open == std::string::npos || close == std::string::npos)
        return {};
    std::vector<std::string> texts;
    for (auto start = open + 1; start <= close;) {
        const auto end = std::min(text.find(',', start), close);
        std::string one =
            text.substr(0, open) + text.substr(start, end - start) + text.substr(close + 1);
        auto more = expand_braces(one);
        if (more.empty())
            more.push_back(std::move(one));
        texts.insert(texts.end(), more.begin(), more.end());
        start = end + 1;
    }
    return texts;
}

/// What SETTING stands for, if that is several values.
Setting::List values_of(const Setting& setting) {
    Setting::List values;
    if (const auto* list = setting.list()) {
        for (const Setting& item : *list) {
            const auto nested = values_of(item);
            if (nested.empty())
                values.push_back(item);
            else
                values.insert(values.end(), nested.begin(), nested.end());
        }
    } else if (const auto* text = std::get_if<std::string>(&setting.value)) {
        for (auto& one : expand_braces(*text))
            values.push_back({setting.line, std::move(one)});
    }
    return values;
}

void put(SettingTable& table, const std::string& key, Setting setting) {
    for (SettingEntry& entry : table) {
        if (entry.key == key) {
            entry.setting = std::move(setting);
            return;
        }
    }
    table.push_back({key, std::move(setting)});
}

}  // namespace

std::string_view type_of(const Setting& setting) {
    constexpr std::string_view names[] = {"true or false", "a whole number", "a number",
                                          "a text",        "a list",         "a table"};
    return names[setting.value.index()];
}

Result<SettingTable> parse_toml(std::string_view text, std::string_view source) {
    try {
        return convert_table(toml::parse(text));
    } catch (const toml::parse_error& wrong) {
        return Error{
            fmt::format("{}:{}: {}", source, wrong.source().begin.line, wrong.description())};
    }
}

const Setting* find(const SettingTable& table, std::string_view key) {
    const auto found = std::find_if(table.begin(), table.end(),
                                    [&](const SettingEntry& entry) { return entry.key == key; });
    return found == table.end() ? nullptr : &found->setting;
}

void merge(SettingTable& into, const SettingTable& from) {
    for (const SettingEntry& entry : from) {
        const Setting* const existing = find(into, entry.key);
        const SettingTable* const inner = entry.setting.table();
        if (existing == nullptr || existing->table() == nullptr || inner == nullptr) {
            put(into, entry.key, entry.setting);
            continue;
        }
        Setting merged = *existing;
        merge(std::get<SettingTable>(merged.value), *inner);
        put(into, entry.key, std::move(merged));
    }
}

std::string to_text(const Setting& setting) {
    switch (setting.value.index()) {
        case 0:
            return std::get<bool>(setting.value) ? "true" : "false";
        case 1:
            return fmt::format("{}", std::get<std::int64_t>(setting.value));
        case 2:
            return fmt::format("{}", std::get<double>(setting.value));
        case 3:
            return std::get<std::string>(setting.value);
        default:
            return std::string(type_of(setting));
    }
}

Result<std::vector<Chosen>> combinations(const SettingTable& table) {
    std::vector<Chosen> all{{}};
    for (const SettingEntry& entry : table) {
        // What this entry may be, with the choices that this takes.
        std::vector<std::pair<Setting, std::vector<Choice>>> forms;
        const Setting& setting = entry.setting;
        if (const auto* inner = setting.table()) {
            const auto chosen = combinations(*inner);
            if (!chosen)
                return chosen.error();
            for (const Chosen& one : chosen.value()) {
                auto choices = one.choices;
                for (Choice& choice : choices)
                    choice.key = entry.key + "." + choice.key;
                forms.push_back({{setting.line, one.settings}, std::move(choices)});
            }
        } else if (const auto values = values_of(setting); !values.empty()) {
            for (const Setting& value : values)
                forms.push_back({value, {{entry.key, to_text(value)}}});
        } else if (setting.list() == nullptr) {
            forms.push_back({setting, {}});
        }  // else an empty list: there is no combination

        std::vector<Chosen> longer;
        if (all.size() * forms.size() > combinations_max) {
            return Error{fmt::format("the lists have more than {} combinations", combinations_max)};
        }
        for (const Chosen& before : all) {
            for (const auto& [value, choices] : forms) {
                Chosen next = before;
                next.settings.push_back({entry.key, value});
                next.choices.insert(next.choices.end(), choices.begin(), choices.end());
                longer.push_back(std::move(next));
            }
        }
        all = std::move(longer);
    }
    return all;
}

void Problems::add(std::size_t line, std::string_view key, std::string_view what) {
    std::string problem = fmt::format("{}:{}: {}{}{}", source_, line, key,
                                      key.empty() || what.starts_with(" ") ? "" : ": ", what);
    if (std::find(problems_.begin(), problems_.end(), problem) == problems_.end())
        problems_.push_back(std::move(problem));
}

Result<void> Problems::outcome() const {
    if (problems_.empty())
        return {};
    const auto shown = std::min(problems_.size(), problems_shown);
    const std::vector<std::string> first(problems_.begin(),
                                         problems_.begin() + static_cast<std::ptrdiff_t>(shown));
    std::string text = fmt::format("{}", fmt::join(first, "\n"));
    if (shown < problems_.size())
        text += fmt::format("\n... and {} more", problems_.size() - shown);
    return Error{std::move(text)};
}

SettingReader::SettingReader(const SettingTable& table, std::string path, std::size_t line,
                             Problems& problems)
    : table_(table), path_(std::move(path)), line_(line), problems_(problems) {}

std::size_t SettingReader::line_of(std::string_view key) const {
    const Setting* const setting = find(table_, key);
    return setting == nullptr ? line_ : setting->line;
}

std::string SettingReader::path_of(std::string_view key) const {
    if (path_.empty() || key.empty())
        return path_ + std::string(key);
    return fmt::format("{}.{}", path_, key);
}

const Setting* SettingReader::any(std::string_view key) {
    known_.emplace(key);
    return find(table_, key);
}

std::string SettingReader::text(std::string_view key, std::string_view otherwise) {
    const Setting* const setting = any(key);
    if (setting == nullptr)
        return std::string(otherwise);
    if (const auto* text = std::get_if<std::string>(&setting->value))
        return *text;
    refuse(key, fmt::format("must be a text in quotes, not {}", type_of(*setting)));
    return std::string(otherwise);
}

std::string SettingReader::word(std::string_view key, std::string_view otherwise) {
    const Setting* const setting = any(key);
    if (setting != nullptr && std::holds_alternative<std::int64_t>(setting->value))
        return to_text(*setting);
    return text(key, otherwise);
}

std::int64_t SettingReader::whole(std::string_view key, std::int64_t otherwise, std::int64_t min,
                                  std::int64_t max) {
    const Setting* const setting = any(key);
    if (setting == nullptr)
        return otherwise;
    const auto* const value = std::get_if<std::int64_t>(&setting->value);
    if (value == nullptr)
        refuse(key, fmt::format("must be a whole number, not {}", type_of(*setting)));
    else if (*value < min || *value > max)
        refuse(key, fmt::format("must be {} to {}, not {}", min, max, *value));
    else
        return *value;
    return otherwise;
}

bool SettingReader::flag(std::string_view key, bool otherwise) {
    const Setting* const setting = any(key);
    if (setting == nullptr)
        return otherwise;
    if (const auto* const value = std::get_if<bool>(&setting->value))
        return *value;
    refuse(key, fmt::format("must be true or false, not {}", type_of(*setting)));
    return otherwise;
}

double SettingReader::number(std::string_view key, double otherwise, double min, double max) {
    const Setting* const setting = any(key);
    if (setting == nullptr)
        return otherwise;
    double value = 0;
    if (const auto* whole = std::get_if<std::int64_t>(&setting->value)) {
        value = static_cast<double>(*whole);
    } else if (const auto* number = std::get_if<double>(&setting->value)) {
        value = *number;
    } else {
        refuse(key, fmt::format("must be a number, not {}", type_of(*setting)));
        return otherwise;
    }
    if (value >= min && value <= max)
        return value;
    refuse(key, fmt::format("must be {} to {}, not {}", min, max, value));
    return otherwise;
}

SettingReader SettingReader::table(std::string_view key) {
    const Setting* const setting = any(key);
    if (setting != nullptr && setting->table() == nullptr)
        refuse(key, fmt::format("must be a table, not {}", type_of(*setting)));
    const bool usable = setting != nullptr && setting->table() != nullptr;
    return {usable ? *setting->table() : empty_table, path_of(key), line_of(key), problems_};
}

std::vector<std::pair<std::string, SettingReader>> SettingReader::tables(std::string_view key) {
    SettingReader outer = table(key);
    std::vector<std::pair<std::string, SettingReader>> inner;
    for (const SettingEntry& entry : outer.table_)
        inner.emplace_back(entry.key, outer.table(entry.key));
    return inner;
}

std::vector<SettingReader> SettingReader::list_of_tables(std::string_view key) {
    const Setting* const setting = any(key);
    std::vector<SettingReader> readers;
    if (setting == nullptr)
        return readers;
    if (setting->list() == nullptr) {
        refuse(key, fmt::format("must be a list of tables, [[{}]], not {}", path_of(key),
                                type_of(*setting)));
        return readers;
    }
    for (const Setting& item : *setting->list()) {
        if (item.table() != nullptr)
            readers.emplace_back(*item.table(), path_of(key), item.line, problems_);
        else
            problems_.add(item.line, path_of(key),
                          fmt::format("must be tables, not {}", type_of(item)));
    }
    return readers;
}

std::vector<std::string> SettingReader::keys_of(std::string_view key) const {
    std::vector<std::string> keys;
    const Setting* const setting = find(table_, key);
    if (setting != nullptr && setting->table() != nullptr) {
        for (const SettingEntry& entry : *setting->table())
            keys.push_back(entry.key);
    }
    return keys;
}

std::vector<std::string> SettingReader::texts(std::string_view key) {
    const Setting* const setting = any(key);
    if (setting == nullptr)
        return {};
    if (setting->list() == nullptr)
        return {text(key, "")};
    std::vector<std::string> texts;
    for (const Setting& item : *setting->list()) {
        if (const auto* text = std::get_if<std::string>(&item.value))
            texts.push_back(*text);
        else
            problems_.add(item.line, path_of(key),
                          fmt::format("must be texts in quotes, not {}", type_of(item)));
    }
    return texts;
}

void SettingReader::refuse(std::string_view key, std::string_view what) {
    problems_.add(line_of(key), path_of(key), what);
}

void SettingReader::require(std::string_view key, std::string_view what) {
    if (!has(key))
        refuse(key, fmt::format("is missing: {}", what));
}

void SettingReader::finish(const std::vector<std::string>& known) {
    known_.insert(known.begin(), known.end());
    for (const SettingEntry& entry : table_) {
        if (!known_.contains(entry.key)) {
            refuse(entry.key, fmt::format("there is no such setting here; there are {}",
                                          fmt::join(known_, ", ")));
        }
    }
}

}  // namespace mercury
