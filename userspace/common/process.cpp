// SPDX-License-Identifier: MIT
#include "common/process.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/fd.hpp"

namespace mercury {
namespace {

/// posix_spawn's two option objects, with nothing inherited that the child should not have: it
/// gets its own stdin, and the default mask and handlers of the signals that we wait for.
class SpawnOptions {
  public:
    SpawnOptions(int in, int out, int err) {
        posix_spawn_file_actions_init(&actions_);
        posix_spawn_file_actions_adddup2(&actions_, in, STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions_, out, STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions_, err, STDERR_FILENO);
        posix_spawnattr_init(&attributes_);
        sigset_t none;
        sigemptyset(&none);
        posix_spawnattr_setsigmask(&attributes_, &none);
        posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
    }
    SpawnOptions(const SpawnOptions&) = delete;
    SpawnOptions& operator=(const SpawnOptions&) = delete;
    ~SpawnOptions() {
        posix_spawn_file_actions_destroy(&actions_);
        posix_spawnattr_destroy(&attributes_);
    }

    const posix_spawn_file_actions_t* actions() const { return &actions_; }
    const posix_spawnattr_t* attributes() const { return &attributes_; }

  private:
    posix_spawn_file_actions_t actions_{};
    posix_spawnattr_t attributes_{};
};

/// A file in memory that holds CONTENT, to be read from its start.
Result<Fd> file_with(std::string_view content) {
    Fd file(memfd_create("stdin", MFD_CLOEXEC));
    if (!file)
        return system_error("memfd_create");
    while (!content.empty()) {
        const ssize_t written = write(file.get(), content.data(), content.size());
        if (written <= 0)
            return system_error("cannot write to a file in memory");
        content.remove_prefix(static_cast<std::size_t>(written));
    }
    lseek(file.get(), 0, SEEK_SET);
    return file;
}

std::string content_of(const Fd& file) {
    std::string content;
    std::array<char, 4096> buffer{};
    off_t offset = 0;
    for (;;) {
        const ssize_t got = pread(file.get(), buffer.data(), buffer.size(), offset);
        if (got <= 0)
            return content;
        content.append(buffer.data(), static_cast<std::size_t>(got));
        offset += got;
    }
}

std::string_view trim_end(std::string_view text) {
    return text.substr(0, text.find_last_not_of(" \n") + 1);
}

}  // namespace

Result<std::string> run_command(const std::vector<std::string>& argv, std::string_view input) {
    const auto in = file_with(input);
    if (!in)
        return in.error();
    const Fd out(memfd_create("stdout", MFD_CLOEXEC));
    const Fd err(memfd_create("stderr", MFD_CLOEXEC));
    if (!out || !err)
        return system_error("memfd_create");

    std::vector<std::string> words = argv;  // exec wants them writable
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (auto& word : words)
        pointers.push_back(word.data());
    pointers.push_back(nullptr);

    const SpawnOptions options(in.value().get(), out.get(), err.get());
    pid_t child = 0;
    errno = posix_spawnp(&child, pointers[0], options.actions(), options.attributes(),
                         pointers.data(), environ);
    if (errno != 0)
        return system_error(fmt::format("cannot run {}", argv[0]));

    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return system_error("waitpid");
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return content_of(out);
    const std::string how = WIFEXITED(status) ? fmt::format("exit status {}", WEXITSTATUS(status))
                                              : fmt::format("signal {}", WTERMSIG(status));
    return Error{
        fmt::format("`{}` failed ({}): {}", fmt::join(argv, " "), how, trim_end(content_of(err)))};
}

}  // namespace mercury
