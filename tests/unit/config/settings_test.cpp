// SPDX-License-Identifier: MIT
#include "config/settings.hpp"

#include <catch2/catch.hpp>

using namespace mercury;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

SettingTable parsed(std::string_view text) {
    auto table = parse_toml(text, "x.toml");
    INFO((table ? "" : table.error().message));
    REQUIRE(table);
    return std::move(table).value();
}

/// "a=1 b.c=x", in the order of the table.
std::string flat(const SettingTable& table, const std::string& path = "") {
    std::string text;
    for (const SettingEntry& entry : table) {
        if (const auto* inner = entry.setting.table())
            text += flat(*inner, path + entry.key + ".");
        else
            text += path + entry.key + "=" + to_text(entry.setting) + " ";
    }
    return text;
}

std::vector<std::string> all_of(std::string_view text) {
    const auto chosen = combinations(parsed(text));
    REQUIRE(chosen);
    std::vector<std::string> all;
    for (const Chosen& one : chosen.value())
        all.push_back(flat(one.settings));
    return all;
}

}  // namespace

TEST_CASE("a file keeps its order and its lines", "[settings]") {
    const auto table = parsed("z = 1\na = \"x\"\n\n[m]\ny = true\nb = 2.5\n");
    CHECK(flat(table) == "z=1 a=x m.y=true m.b=2.5 ");
    CHECK(find(table, "a")->line == 2);
    CHECK(find(*find(table, "m")->table(), "b")->line == 6);
    CHECK(find(table, "nothing") == nullptr);
}

TEST_CASE("what is not TOML is an error with file and line", "[settings]") {
    const auto table = parse_toml("a = 1\nb = \n", "x.toml");
    REQUIRE_FALSE(table);
    CHECK_THAT(table.error().message, Contains("x.toml:2: "));
    const auto twice = parse_toml("a = 1\na = 2\n", "x.toml");
    REQUIRE_FALSE(twice);
    CHECK_THAT(twice.error().message, Contains("x.toml:2: "));
}

TEST_CASE("tables are merged key by key, and nothing else", "[settings]") {
    SettingTable into = parsed("a = 1\n[t]\nx = 1\ny = 2\n[u]\nz = 3\n");
    merge(into, parsed("a = 2\nu = 4\n[t]\ny = 5\nw = 6\n"));
    CHECK(flat(into) == "a=2 t.x=1 t.y=5 t.w=6 u=4 ");
}

TEST_CASE("lists stand for one value after the other, the last fastest", "[settings]") {
    CHECK(all_of("a = [1, 2]\n[t]\nb = [\"x\", \"y\"]\nc = 3\n") ==
          std::vector<std::string>{"a=1 t.b=x t.c=3 ", "a=1 t.b=y t.c=3 ", "a=2 t.b=x t.c=3 ",
                                   "a=2 t.b=y t.c=3 "});
    CHECK(all_of("a = 1\n") == std::vector<std::string>{"a=1 "});
    CHECK(all_of("a = []\n").empty());
}

TEST_CASE("so do braces in a text", "[settings]") {
    CHECK(all_of("s = \"p n={1,2} m={a,b}\"\n") ==
          std::vector<std::string>{"s=p n=1 m=a ", "s=p n=1 m=b ", "s=p n=2 m=a ", "s=p n=2 m=b "});
    CHECK(all_of("s = [\"p\", \"q n={1,2}\"]\n") ==
          std::vector<std::string>{"s=p ", "s=q n=1 ", "s=q n=2 "});
    CHECK(all_of("s = \"}{\"\n") == std::vector<std::string>{"s=}{ "});
}

TEST_CASE("a combination says what was chosen where", "[settings]") {
    const auto chosen = combinations(parsed("a = [1, 2]\n[t]\nb = [true, false]\n"));
    REQUIRE(chosen);
    REQUIRE(chosen.value().size() == 4);
    const auto& choices = chosen.value()[2].choices;
    REQUIRE(choices.size() == 2);
    CHECK(choices[0].key == "a");
    CHECK(choices[0].label == "2");
    CHECK(choices[1].key == "t.b");
    CHECK(choices[1].label == "true");
}

TEST_CASE("too many combinations are refused before they fill the memory", "[settings]") {
    std::string text;
    for (int i = 0; i < 30; ++i)
        text += "k" + std::to_string(i) + " = [1, 2, 3]\n";
    const auto chosen = combinations(parsed(text));
    REQUIRE_FALSE(chosen);
    CHECK_THAT(chosen.error().message, Contains("more than 10000"));
}

TEST_CASE("a reader finds all problems at once", "[settings]") {
    const SettingTable table = parsed(
        "[t]\nwhole = \"5\"\nlow = 0\nhigh = 1e9\ntext = 7\nknown = 3\nunknown = 1\n"
        "flag = true\n");
    Problems problems("x.toml");
    SettingReader root(table, "", 1, problems);
    SettingReader reader = root.table("t");
    CHECK(reader.whole("whole", 9, 1, 10) == 9);
    CHECK(reader.whole("low", 9, 1, 10) == 9);
    CHECK(reader.number("high", 2, 0, 1000) == 2);
    CHECK(reader.number("flag", 2, 0, 1000) == 2);
    CHECK(reader.text("text", "else") == "else");
    CHECK(reader.word("text", "else") == "7");
    CHECK(reader.whole("known", 9, 1, 10) == 3);
    CHECK(reader.number("known", 9, 1, 10) == 3);
    CHECK(reader.whole("missing", 8, 1, 10) == 8);
    reader.require("needed", "a thing");
    reader.finish();
    const auto outcome = problems.outcome();
    REQUIRE_FALSE(outcome);
    CHECK_THAT(outcome.error().message,
               Equals("x.toml:2: t.whole: must be a whole number, not a text\n"
                      "x.toml:3: t.low: must be 1 to 10, not 0\n"
                      "x.toml:4: t.high: must be 0 to 1000, not 1000000000\n"
                      "x.toml:8: t.flag: must be a number, not true or false\n"
                      "x.toml:5: t.text: must be a text in quotes, not a whole number\n"
                      "x.toml:1: t.needed: is missing: a thing\n"
                      "x.toml:7: t.unknown: there is no such setting here; there are flag, high, "
                      "known, low, missing, text, whole"));
}

TEST_CASE("not-a-number is not within any range", "[settings]") {
    const SettingTable table = parsed("n = nan\n");
    Problems problems("x.toml");
    SettingReader reader(table, "", 1, problems);
    CHECK(reader.number("n", 3, 0, 10) == 3);
    CHECK_FALSE(problems.outcome());
}

TEST_CASE("a problem that many cases share is told once, and ten at most", "[settings]") {
    Problems problems("x.toml");
    for (int i = 0; i < 3; ++i)
        problems.add(1, "a", "is wrong");
    CHECK(problems.outcome().error().message == "x.toml:1: a: is wrong");
    for (std::size_t i = 0; i < 20; ++i)
        problems.add(i, "b", "is wrong");
    CHECK_THAT(problems.outcome().error().message, Contains("... and 11 more"));
}

TEST_CASE("tables in a table, and texts in a list", "[settings]") {
    const SettingTable table =
        parsed("one = \"a\"\nmore = [\"b\", \"c\"]\n[t.x]\nv = 1\n[t.y]\nv = 2\n");
    Problems problems("x.toml");
    SettingReader reader(table, "", 1, problems);
    CHECK(reader.texts("one") == std::vector<std::string>{"a"});
    CHECK(reader.texts("more") == std::vector<std::string>{"b", "c"});
    CHECK(reader.texts("none").empty());
    CHECK(reader.keys_of("t") == std::vector<std::string>{"x", "y"});
    auto inner = reader.tables("t");
    REQUIRE(inner.size() == 2);
    CHECK(inner[1].first == "y");
    CHECK(inner[1].second.whole("v", 0, 0, 9) == 2);
    CHECK(problems.outcome());
    reader.table("one");
    CHECK_THAT(problems.outcome().error().message, Contains("one: must be a table, not a text"));
}
