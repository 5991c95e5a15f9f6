"""A process that locks with redis-py's Lock on command: one line in, one line out. See xtask/src/interop/peer.rs."""

import os
import sys
import time

import redis
from redis.exceptions import LockError

client = redis.Redis(port=int(sys.argv[1]))
held = {}


def lock(name, lease_ms, wait_ms):
    fresh = client.lock(name, timeout=int(lease_ms) / 1000, thread_local=False)
    if not fresh.acquire(blocking_timeout=int(wait_ms) / 1000):
        return "busy"
    held[name] = fresh
    return "held"


def unlock(name):
    try:
        held.pop(name).release()
        return "free"
    except LockError:
        return "lost"


def extend(name, lease_ms):
    try:
        held[name].extend(int(lease_ms) / 1000, replace_ttl=True)
        return "held"
    except LockError:
        return "lost"


def spin(name, for_ms, witness):
    turns = violations = 0
    until = time.monotonic() + int(for_ms) / 1000
    while time.monotonic() < until:
        with client.lock(name, timeout=30, sleep=0.01):
            try:
                os.close(os.open(witness, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                violations += 1
            turns += 1
            os.remove(witness)
        time.sleep(0.001)
    return f"{turns} {violations}"


verbs = {"lock": lock, "unlock": unlock, "extend": extend, "spin": spin}
print("ready", flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    print(verbs[verb](*words), flush=True)
