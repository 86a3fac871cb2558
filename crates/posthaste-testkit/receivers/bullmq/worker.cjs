// Runs jobs of any name in the queues that are named, and writes one line for each.
const { fsyncSync, openSync, writeSync } = require("node:fs");
const { Worker } = require("bullmq");

const effects = openSync(process.env.POSTHASTE_EFFECTS, "a");
const { hostname: host, port, pathname } = new URL(process.env.REDIS_URL);
// Waits for a server that is away.
const connection = { host, port: Number(port), db: Number(pathname.slice(1) || 0), maxRetriesPerRequest: null, retryStrategy: () => 100 };

const run = async (job) => {
  const line = { id: job.id, name: job.name, args: job.data, queue: job.queueName, opts: job.opts, attempts: job.attemptsMade };
  writeSync(effects, `${JSON.stringify(line)}\n`);
  fsyncSync(effects);
};
const workers = process.env.POSTHASTE_QUEUES.split(",").map((queue) => new Worker(queue, run, { connection, concurrency: 4 }));
for (const worker of workers) worker.on("error", (error) => console.error(error.message));
Promise.all(workers.map((worker) => worker.waitUntilReady())).then(() => console.log("ready"));
process.on("SIGTERM", () => Promise.all(workers.map((worker) => worker.close())).then(() => process.exit(0)));
