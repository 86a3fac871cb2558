// The verbs of lab/bench/peers/README.md, for peers on Node.js: `node peer.mjs NAME VERB …`.
import { createWriteStream } from "node:fs";
import { finished } from "node:stream/promises";

const [name, verb, ...given] = process.argv.slice(2);
const peer = await import(`./${name}.mjs`);

// Rows that are handed over at once.
const BATCH = 5_000;

const say = (...words) => console.log(words.join(" "));
const now = () => Math.round((performance.timeOrigin + performance.now()) * 1000);
const upTo = (first, count) => Array.from({ length: count }, (_, at) => first + at);
const together = (count, task) => Promise.all(upTo(0, count).map(task));

async function write(file, lines) {
  const out = createWriteStream(file);
  for (const line of lines) out.write(line);
  out.end();
  await finished(out);
}

async function single(conns, seconds) {
  const producer = await peer.producer(conns);
  let count = 0;
  say("begin");
  const end = performance.now() + seconds * 1000;
  await together(conns, async () => {
    while (performance.now() < end) await producer.one(++count);
  });
  say("end", count);
}

async function bulk(rows) {
  const producer = await peer.producer(1);
  say("begin");
  for (let first = 1; first <= rows; first += BATCH) {
    await producer.many(upTo(first, Math.min(BATCH, rows - first + 1)));
  }
  say("end", rows);
}

async function drain(wanted) {
  let count = 0;
  const { promise, resolve } = Promise.withResolvers();
  say("begin");
  const worker = await peer.work(() => {
    if (++count === wanted) resolve();
  });
  await promise;
  say("reached");
  await worker.stop();
  say("end", count);
}

async function work(file) {
  const seen = [];
  const worker = await peer.work((number) => void seen.push(`${number} ${now()}\n`));
  const told = new Promise((resolve) => process.stdin.on("end", resolve).resume());
  say("ready");
  await told;
  await worker.stop();
  await write(file, seen);
}

async function offer(rate, seconds, each, conns, file) {
  const producer = await peer.producer(conns);
  const seen = [];
  const period = (1000 * each * conns) / rate;
  const begun = performance.now();
  const end = begun + seconds * 1000;
  await together(conns, async (place) => {
    let due = begun + (period * place) / conns;
    for (let first = (place + 1) * 1e9 + 1; due < end; first += each, due += period) {
      const early = due - performance.now();
      if (early > 0) await new Promise((resolve) => setTimeout(resolve, early));
      if (performance.now() >= end) return;
      const began = now();
      await (each === 1 ? producer.one(first) : producer.many(upTo(first, each)));
      const committed = now();
      for (const number of upTo(first, each)) seen.push(`${number} ${began} ${committed}\n`);
    }
  });
  say("end", seen.length);
  await write(file, seen);
}

const verbs = {
  setup: async () => say("version", await peer.setup()),
  single: () => single(Number(given[0]), Number(given[1])),
  bulk: () => bulk(Number(given[0])),
  drain: () => drain(Number(given[0])),
  work: () => work(given[0]),
  offer: () => offer(...given.slice(0, 4).map(Number), given[4]),
};
await verbs[verb]();
process.exit(0);
