"""A program that loads models and answers in forked children; tests run it with a time limit.

python -m tests.predict.forking MODEL …
"""

import json
import multiprocessing
import os
import socket
import sys

import torch

import weft

TEXTS = [
    f"the plot was {'good' if i % 2 else 'bad'} {'scene dinner ' * (i % 7)}" for i in range(212)
]
PARTS = [TEXTS[i::4] for i in range(4)]  # each large enough for several threads
PREDICTORS = []


def answer(texts):
    return [[a.value for a in predictor(texts)] for predictor in PREDICTORS]


def pool():
    """Two processes of a pool share out the parts."""
    with multiprocessing.get_context("fork").Pool(2) as workers:
        return workers.map(answer, PARTS)


def server():
    """Two workers that were forked before the first request answer over sockets."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(60)
    workers = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            connection, _ = listening.accept()
            for line in connection.makefile(encoding="utf-8"):
                connection.sendall((json.dumps(answer(json.loads(line))) + "\n").encode())
            os._exit(0)
        workers.append(pid)
    connections = [socket.create_connection(listening.getsockname(), 60) for _ in workers]
    replies = [one.makefile(encoding="utf-8") for one in connections]
    found = []
    for i, part in enumerate(PARTS):
        connections[i % 2].sendall((json.dumps(part) + "\n").encode())
        found.append(json.loads(replies[i % 2].readline()))
    for one, reply in zip(connections, replies, strict=True):
        reply.close()
        one.close()
    assert [os.waitpid(pid, 0)[1] for pid in workers] == [0, 0]
    return found


def loader():
    """Workers of a DataLoader call the predictor."""
    return list(
        torch.utils.data.DataLoader(
            PARTS,
            batch_size=None,
            collate_fn=answer,
            num_workers=2,
            multiprocessing_context="fork",
            timeout=60,
        )
    )


def threads():
    """A child computes with one thread, and may ask for more."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        alone = torch.get_num_threads()
        torch.set_num_threads(2)
        same = [answer(part) for part in PARTS] == EXPECTED
        os.write(writing, bytes([alone, torch.get_num_threads(), same]))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert tuple(os.read(reading, 3)) == (1, 2, True)
    assert torch.get_num_threads() == 2  # the parent's count is as it was
    return [answer(part) for part in PARTS]


if __name__ == "__main__":
    torch.set_num_threads(2)
    PREDICTORS += [weft.load(folder) for folder in sys.argv[1:]]
    EXPECTED = [answer(part) for part in PARTS]
    for way in (pool, server, loader, threads):
        assert way() == EXPECTED
        assert os.environ["TOKENIZERS_PARALLELISM"] == "true"  # as it was
        print(way.__name__, flush=True)
