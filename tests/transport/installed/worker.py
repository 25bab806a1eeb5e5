# SPDX-License-Identifier: MIT
"""worker.c in Python: worker.py LIBRARY SERVER RANK WORKERS."""

import ctypes
import sys

ELEMENTS = 1000
F32, SUM = 0, 0


def load(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    library.mercury_transport_error.restype = ctypes.c_char_p
    library.mercury_worker_new.argtypes = [ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint]
    library.mercury_worker_new.restype = ctypes.c_void_p
    library.mercury_worker_add_server.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.mercury_worker_add_tensor.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int,
    ]
    library.mercury_worker_join.argtypes = [ctypes.c_void_p]
    library.mercury_worker_push_pull_then.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, CALLBACK, ctypes.c_void_p,
    ]
    library.mercury_worker_wait.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_int,
    ]
    library.mercury_worker_free.argtypes = [ctypes.c_void_p]
    library.mercury_worker_free.restype = None
    return library


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)


def main(path: str, server: str, rank: int, workers: int) -> None:
    library = load(path)

    def check(outcome: int) -> None:
        if outcome != 0:
            sys.exit(library.mercury_transport_error().decode())

    worker = library.mercury_worker_new(b"installed", rank, workers)
    check(library.mercury_worker_add_server(worker, server.encode()))
    check(library.mercury_worker_add_tensor(worker, b"tensor", F32, ELEMENTS, 0, SUM))
    check(library.mercury_worker_join(worker))
    buffer = (ctypes.c_float * ELEMENTS)(*[rank + 1] * ELEMENTS)
    told = []
    callback = CALLBACK(lambda _context, error: told.append(error))
    check(
        library.mercury_worker_push_pull_then(
            worker, 0, buffer, ctypes.sizeof(buffer), callback, None
        )
    )
    check(library.mercury_worker_wait(worker, 0, 1, -1))
    if list(buffer) != [workers * (workers + 1) / 2] * ELEMENTS:
        sys.exit("the sum is wrong")
    library.mercury_worker_free(worker)  # after which the callback has returned
    if told != [None]:
        sys.exit(f"the callback was told {told}")
    print("the sum is right")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
