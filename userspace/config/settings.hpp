// SPDX-License-Identifier: MIT
//
// Settings as read from a TOML file: values that know their line, tables that are merged and
// lists that stand for one value after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/result.hpp"

namespace mercury {

struct SettingEntry;

struct Setting {
    using List = std::vector<Setting>;
    using Table = std::vector<SettingEntry>;  // in the order of the file, no key twice

    std::size_t line = 0;
    std::variant<bool, std::int64_t, double, std::string, List, Table> value;

    const Table* table() const { return std::get_if<Table>(&value); }
    const List* list() const { return std::get_if<List>(&value); }
};

using SettingTable = Setting::Table;

struct SettingEntry {
    std::string key;
    Setting setting;
};

/// SOURCE names the text in errors.
Result<SettingTable> parse_toml(std::string_view text, std::string_view source);

const Setting* find(const SettingTable& table, std::string_view key);

/// Tables are merged key by key; whatever else FROM has replaces what INTO has.
void merge(SettingTable& into, const SettingTable& from);

/// Completes "must be a number, not": "a text".
std::string_view type_of(const Setting& setting);

/// A string as it is, and others as in TOML.
std::string to_text(const Setting& setting);

/// One of the values that a list stands for.
struct Choice {
    std::string key;    // where the list was, "job.model"
    std::string label;  // the value
};

struct Chosen {
    SettingTable settings;        // without lists
    std::vector<Choice> choices;  // one for each list, in the order of the file
};

/// All combinations of the values of all lists in TABLE, the last list varying fastest. A text
/// with braces, "credit={4,16}", is the list of what it becomes with each of the words.
Result<std::vector<Chosen>> combinations(const SettingTable& table);

/// What is wrong with a file, one sentence each, with file, line and key.
class Problems {
  public:
    explicit Problems(std::string source) : source_(std::move(source)) {}

    /// The same one again changes nothing: many cases share a setting.
    void add(std::size_t line, std::string_view key, std::string_view what);

    Result<void> outcome() const;

  private:
    std::string source_;
    std::vector<std::string> problems_;
};

/// Reads the settings of one table. Whatever is wrong is added to the problems, and a harmless
/// value returned, so that all problems are found at once.
class SettingReader {
  public:
    /// PATH is the key of the table, "" for the whole file, LINE where it starts. TABLE and
    /// PROBLEMS outlive the reader.
    SettingReader(const SettingTable& table, std::string path, std::size_t line,
                  Problems& problems);

    bool has(std::string_view key) const { return find(table_, key) != nullptr; }
    std::size_t line_of(std::string_view key) const;
    std::size_t line() const { return line_; }
    std::string path_of(std::string_view key) const;

    /// The value of KEY, which must be of that type, or OTHERWISE without KEY.
    std::string text(std::string_view key, std::string_view otherwise);
    std::int64_t whole(std::string_view key, std::int64_t otherwise, std::int64_t min,
                       std::int64_t max);
    bool flag(std::string_view key, bool otherwise);
    double number(std::string_view key, double otherwise, double min, double max);

    /// The value of KEY whatever its type, or nullptr.
    const Setting* any(std::string_view key);

    /// An integer or a text, such as a host or several of them.
    std::string word(std::string_view key, std::string_view otherwise);

    /// The table at KEY, an empty one without KEY.
    SettingReader table(std::string_view key);
    /// The tables in the table at KEY, with their names.
    std::vector<std::pair<std::string, SettingReader>> tables(std::string_view key);
    /// The tables of the list at KEY, [[key]] in the file.
    std::vector<SettingReader> list_of_tables(std::string_view key);
    /// The keys of the table at KEY.
    std::vector<std::string> keys_of(std::string_view key) const;
    /// The texts at KEY: one, or a list of them.
    std::vector<std::string> texts(std::string_view key);

    /// What it reads, and a reader in the same place that reads something else.
    const SettingTable& settings() const { return table_; }
    SettingReader with(const SettingTable& table) const { return {table, path_, line_, problems_}; }

    void refuse(std::string_view key, std::string_view what);
    void require(std::string_view key, std::string_view what);

    /// Keys that nobody has read are refused. KNOWN is for those that need not be read.
    void finish(const std::vector<std::string>& known = {});

  private:
    const SettingTable& table_;
    std::string path_;
    std::size_t line_;
    Problems& problems_;
    std::set<std::string, std::less<>> known_;
};

}  // namespace mercury
