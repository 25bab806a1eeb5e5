# SPDX-License-Identifier: MIT
"""Mercury for Python: the network sends first what the next training step needs first.

mercury.hints      tells mercuryd the layers of a job and passes it their sockets
mercury.torch      PyTorch's gradients in that order; see docs/pytorch.md
mercury.transport  push-pull through mercury-server
mercury.run        torchrun, as `python -m mercury.run`
"""

__version__ = "0.1.0"
