// What BullMQ's client adds: bullmq.cjs CASE; without one it lists the cases.
const ID = "018f3c9e-7b1a-7c2d-9e3f-4a5b6c7d8e9f";
const timestamp = 1700000000125;
const cases = {
  immediate: { name: "mail:send", data: { to: "a@example.com", n: 1 }, opts: { jobId: ID, timestamp } },
  "remove on complete": { name: "mail:send", data: [1], opts: { jobId: ID, timestamp, removeOnComplete: { age: 86400 }, removeOnFail: { age: 604800, count: 1000 } } },
  empty: { name: "mail:send", data: {}, opts: { jobId: ID, timestamp } },
  unicode: { name: "mail:ü", data: ["日本 🚀", "<a href='x'>&\"\\/</a>", "\u2028\u0001\n\t\u007f"], opts: { jobId: ID, timestamp } },
  numbers: { name: "mail:send", data: [9007199254740991, 1e300, 1.5, -0], opts: { jobId: ID, timestamp } },
  delayed: { name: "mail:send", data: [1], opts: { jobId: ID, timestamp, delay: 3600000 } },
  priority: { name: "mail:send", data: [1], opts: { jobId: ID, timestamp, priority: 5 } },
  "delayed with priority": { name: "mail:send", data: [1], opts: { jobId: ID, timestamp, priority: 5, delay: 3600000 } },
  attempts: { name: "mail:send", data: [1], opts: { jobId: ID, timestamp, attempts: 5, backoff: { type: "exponential", delay: 1000 } } },
  lifo: { name: "mail:send", data: [1], opts: { jobId: ID, timestamp, lifo: true } },
  twice: { name: "mail:send", data: [1], opts: { jobId: ID, timestamp }, twice: true },
};

if (process.argv.length === 2) {
  console.log(JSON.stringify(cases));
} else {
  const { Queue } = require("bullmq");
  const { port } = new URL(process.env.REDIS_URL);
  const { name, data, opts, twice } = cases[process.argv[2]];
  const queue = new Queue("mail", { connection: { port: Number(port) } });
  (async () => {
    await queue.add(name, data, opts);
    if (twice) await queue.add(name, data, opts);
    await queue.close();
    console.error("bullmq", require("bullmq/package.json").version);
  })();
}
