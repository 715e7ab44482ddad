"""A KV-aware router's view, with pyzmq and msgspec: follows a worker's events and replays them.

usage: kv_events_client.py BASE_URL MODEL EVENTS REPLAY

Types are declared as a consumer of vLLM's format declares them, so a wrong shape fails to decode.
Sends two turns of a chat, and checks that blocks form chains, that token ids are the prompt's, that
sequences have no gap and that a replay gives the same batches again.
"""
import json
import sys
import time
import urllib.request

import msgspec
import zmq

DEADLINE_S = 30


class BlockStored(msgspec.Struct, tag="BlockStored"):
    block_hashes: list[bytes]
    parent_block_hash: bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None


class BlockRemoved(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[bytes]
    medium: str | None = None


class AllBlocksCleared(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


DECODER = msgspec.msgpack.Decoder(Batch)


class Index:
    """hash -> (parent, ids), as events make it."""

    def __init__(self):
        self.blocks = {}
        self.next = None
        self.cleared = False

    def apply(self, sequence, payload):
        assert self.next in (None, sequence), f"batch {sequence} after {self.next}"
        self.next = sequence + 1
        batch = DECODER.decode(payload)
        assert abs(batch.ts - time.time()) < 3600
        assert batch.data_parallel_rank == 0
        for event in batch.events:
            if isinstance(event, AllBlocksCleared):
                assert not self.blocks, "cleared, with blocks that nobody removed"
                self.cleared = True
                continue
            if isinstance(event, BlockRemoved):
                for name in event.block_hashes:
                    del self.blocks[name]
                continue
            assert event.block_size == 16 and event.medium == "GPU"
            assert len(event.token_ids) == 16 * len(event.block_hashes)
            parent = event.parent_block_hash
            assert parent is None or parent in self.blocks, "a child without its parent"
            for i, name in enumerate(event.block_hashes):
                assert len(name) == 16
                self.blocks[name] = (parent, event.token_ids[16 * i:16 * i + 16])
                parent = name

    def chains(self):
        """Token ids of every chain from a root to a leaf."""
        parents = {parent for parent, _ in self.blocks.values()}
        for name in self.blocks:
            if name in parents:
                continue
            ids = []
            while name is not None:
                name, block = self.blocks[name]
                ids = block + ids
            yield ids


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return json.load(answer)


def replayed(context, endpoint):
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.connect(endpoint)
    socket.send_multipart([b"", (0).to_bytes(8, "big")])
    index = Index()
    while True:
        assert socket.poll(DEADLINE_S * 1000), "the replay does not end"
        _, topic, sequence, payload = socket.recv_multipart()
        if int.from_bytes(sequence, "big", signed=True) == -1:
            return index
        assert topic == b"kv-events"
        index.apply(int.from_bytes(sequence, "big"), payload)


def main():
    url, model, events, replay = sys.argv[1:]
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.linger = 0
    socket.setsockopt_string(zmq.SUBSCRIBE, "kv-events")
    socket.connect(events)
    messages = [{"role": "user", "content": "Tell me of the sea, the tide and the moon. " * 8}]
    for turn in range(2):
        # The prompt is what /tokenize says only when the model's own ids are not gone on with.
        body = {"model": model, "messages": messages, "refrain": {"turn_memory": False}}
        ids = post(url, "/tokenize", body)["tokens"]
        answer = post(url, "/v1/chat/completions", {**body, "max_tokens": 24, "temperature": 0})
        # Events leave before the last token of an answer: the replay has them already.
        index = replayed(context, replay)
        wanted = ids[:len(ids) // 16 * 16]
        assert any(chain[:len(wanted)] == wanted for chain in index.chains()), \
            f"no chain holds the prompt of turn {turn}"
        messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]},
                     {"role": "user", "content": f"And then, after turn {turn}?"}]
    print(f"{len(index.blocks)} blocks in {sum(1 for _ in index.chains())} chains, "
          f"{index.next} batches")

    post(url, "/reset_prefix_cache", {})
    deadline = time.monotonic() + DEADLINE_S
    while not index.cleared:
        assert time.monotonic() < deadline, "a reset of an idle cache is not told"
        index = replayed(context, replay)
    assert not index.blocks

    expected = None
    while socket.poll(1000):
        topic, sequence, payload = socket.recv_multipart()
        sequence = int.from_bytes(sequence, "big")
        DECODER.decode(payload)
        assert topic == b"kv-events"
        assert expected in (None, sequence), f"batch {sequence} after {expected}"
        expected = sequence + 1
    assert expected == index.next, f"the PUB socket told up to {expected}, the replay {index.next}"
    print("all passed")


if __name__ == "__main__":
    main()
