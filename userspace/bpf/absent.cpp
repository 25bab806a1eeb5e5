// SPDX-License-Identifier: MIT
//
// In the place of the programs, where there was nothing to compile them with.
#include "bpf/layer_programs.hpp"
#include "bpf/rule_programs.hpp"

namespace mercury::bpf {
namespace {

Error absent() {
    return Error{"this mercuryd was built without " MERCURY_BPF_MISSING
                 ", which programs in the kernel need"};
}

}  // namespace

Result<std::unique_ptr<RulePrograms>> RulePrograms::load(const std::vector<Rule>& /*rules*/,
                                                         const RulePrograms* /*before*/) {
    return absent();
}

Result<std::unique_ptr<LayerPrograms>> LayerPrograms::load() {
    return absent();
}

}  // namespace mercury::bpf
