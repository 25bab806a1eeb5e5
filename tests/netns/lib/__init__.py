# SPDX-License-Identifier: GPL-2.0
"""What the namespace tests share: networks, tc, traffic and captures."""
