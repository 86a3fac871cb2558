"""The verbs of lab/bench/peers/README.md, for peers in Python: `python peer.py NAME VERB …`."""

import asyncio
import importlib
import importlib.metadata
import sys
import time

import uvloop

# Rows that are handed over at once.
BATCH = 5_000


def say(*words):
    print(*words, flush=True)


def now():
    return time.time_ns() // 1000


def write(file, lines):
    with open(file, "w") as out:
        out.writelines(lines)


async def single(peer, conns, seconds):
    count = 0
    async with peer.producer(conns) as producer:
        say("begin")
        end = time.monotonic() + seconds

        async def insert():
            nonlocal count
            while time.monotonic() < end:
                count += 1
                await producer.one(count)

        await asyncio.gather(*(insert() for _ in range(conns)))
        say("end", count)


async def bulk(peer, rows):
    async with peer.producer(1) as producer:
        say("begin")
        for first in range(1, rows + 1, BATCH):
            await producer.many(range(first, min(first + BATCH, rows + 1)))
        say("end", rows)


async def drain(peer, wanted):
    count = 0
    reached = asyncio.Event()

    def started(_):
        nonlocal count
        count += 1
        if count == wanted:
            reached.set()

    say("begin")
    async with peer.worker(started):
        await reached.wait()
        say("reached")
    say("end", count)


async def work(peer, file):
    seen = []
    async with peer.worker(lambda number: seen.append(f"{number} {now()}\n")):
        say("ready")
        await asyncio.to_thread(sys.stdin.read)
    write(file, seen)


async def offer(peer, rate, seconds, each, conns, file):
    seen = []
    period = each * conns / rate
    async with peer.producer(conns) as producer:
        begun = time.monotonic()
        end = begun + seconds

        async def insert(place):
            due = begun + period * place / conns
            first = (place + 1) * 1_000_000_000 + 1
            while due < end:
                await asyncio.sleep(max(0, due - time.monotonic()))
                if time.monotonic() >= end:
                    return
                numbers = range(first, first + each)
                began = now()
                await (producer.one(first) if each == 1 else producer.many(numbers))
                committed = now()
                seen.extend(f"{number} {began} {committed}\n" for number in numbers)
                first += each
                due += period

        await asyncio.gather(*(insert(place) for place in range(conns)))
    say("end", len(seen))
    write(file, seen)


async def obey(name, verb, *given):
    peer = importlib.import_module(f"{name}_peer")
    if verb == "setup":
        await peer.setup()
        # The package of awa has another name.
        package = {"awa": "awa-pg"}.get(name, name)
        say("version", importlib.metadata.version(package))
    elif verb == "work":
        await work(peer, given[0])
    elif verb == "offer":
        await offer(peer, *(int(number) for number in given[:4]), given[4])
    else:
        verbs = {"single": single, "bulk": bulk, "drain": drain}
        await verbs[verb](peer, *(int(number) for number in given))


uvloop.run(obey(*sys.argv[1:]))
