// SPDX-License-Identifier: MIT
#pragma once

namespace mercury::bpf {

/// Whether this process has CAPABILITY (CAP_*) in effect.
bool has_capability(int capability);

}  // namespace mercury::bpf
