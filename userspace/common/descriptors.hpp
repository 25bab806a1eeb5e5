// SPDX-License-Identifier: MIT
#pragma once

namespace mercury {

/// Each connection is a descriptor, and a service manager's usual 1024 are soon used up: this
/// process may have as many as it is allowed to.
void raise_descriptor_limit();

}  // namespace mercury
