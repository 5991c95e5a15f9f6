// A process that locks with node redlock on command: one line in, one line out. See xtask/src/interop/peer.rs.
"use strict";

const fs = require("fs");
const readline = require("readline");
const { default: Redlock } = require("redlock");
const { Redis } = require("ioredis");

// One server, or all nodes of a quorum. A node that is down is its own business; the others are a majority.
const ports = process.argv[2].split(",").map(Number);
const clients = ports.map((port) => new Redis({ host: "127.0.0.1", port, maxRetriesPerRequest: 1 }));
clients.forEach((client) => client.on("error", () => {}));
// Its own retries are for a fixed number of times; the patience of a command is that number.
const pause = 50;
const redlock = new Redlock(clients, { retryDelay: pause, retryJitter: 10, retryCount: 0 });
const held = new Map();

// Its own retries keep what an attempt got at a minority of the nodes, and then wait for themselves until that ends: so
// each attempt here is an acquisition of its own, which gives back what it got.
async function acquire(name, lease) {
  for (;;) {
    try {
      return await redlock.acquire([name], lease, { retryCount: 0 });
    } catch (error) {
      await new Promise((resolve) => setTimeout(resolve, 2 + Math.random() * 10));
    }
  }
}

const verbs = {
  async lock(name, lease, wait) {
    try {
      const retryCount = Math.floor(Number(wait) / pause);
      held.set(name, await redlock.acquire([name], Number(lease), { retryCount }));
      return "held";
    } catch (error) {
      return "busy";
    }
  },
  async unlock(name) {
    const lock = held.get(name);
    held.delete(name);
    try {
      await lock.release();
      return "free";
    } catch (error) {
      return "lost";
    }
  },
  async extend(name, lease) {
    try {
      held.set(name, await held.get(name).extend(Number(lease)));
      return "held";
    } catch (error) {
      return "lost";
    }
  },
  async spin(name, time, witness) {
    let [turns, violations] = [0, 0];
    const until = Date.now() + Number(time);
    while (Date.now() < until) {
      const lock = await acquire(name, 30000);
      try {
        fs.closeSync(fs.openSync(witness, "wx"));
      } catch (error) {
        violations += 1;
      }
      turns += 1;
      fs.unlinkSync(witness);
      await lock.release();
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    return `${turns} ${violations}`;
  },
};

async function main() {
  console.log("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, ...words] = line.split(" ");
    console.log(await verbs[verb](...words));
  }
  clients.forEach((client) => client.disconnect());
}

main();
