"""A process that locks with kazoo on command: one line in, one line out. See xtask/src/interop/peer.rs.

Arguments: the servers, and how long its session lasts, in milliseconds. The lease of `lock` is that session.
"""

import os
import sys
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

# What kazoo must be told in order to see the claims of Curator and of Lockline.
PATTERNS = ["lock-", "__READ__", "__WRIT__"]

client = KazooClient(hosts=sys.argv[1], timeout=int(sys.argv[2]) / 1000)
client.start()
held = {}


def path(name):
    return "/lockline/" + name


def taken(fresh, key, wait_ms):
    try:
        got = fresh.acquire(blocking=int(wait_ms) > 0, timeout=int(wait_ms) / 1000 or None)
    except LockTimeout:
        got = False
    if got:
        held[key] = fresh
    return "held" if got else "busy"


def lock(name, _lease_ms, wait_ms):
    return taken(client.Lock(path(name), "kazoo", extra_lock_patterns=PATTERNS), name, wait_ms)


def read(name, wait_ms):
    # A reader waits for whoever wants to be alone.
    return taken(client.ReadLock(path(name), "kazoo", extra_lock_patterns=["lock-", "__WRIT__"]), name, wait_ms)


def write(name, wait_ms):
    return taken(client.WriteLock(path(name), "kazoo", extra_lock_patterns=PATTERNS), name, wait_ms)


def unlock(name):
    return "free" if held.pop(name).release() else "lost"


def spin(name, for_ms, witness):
    turns = violations = 0
    until = time.monotonic() + int(for_ms) / 1000
    while time.monotonic() < until:
        with client.Lock(path(name), "kazoo", extra_lock_patterns=PATTERNS):
            try:
                os.close(os.open(witness, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                violations += 1
            turns += 1
            os.remove(witness)
    return f"{turns} {violations}"


verbs = {"lock": lock, "read": read, "write": write, "unlock": unlock, "spin": spin}
print("ready", flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    print(verbs[verb](*words), flush=True)
