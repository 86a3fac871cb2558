// Runs jobs of any name in the queues that are named, and writes one line for each; into a file beside, one for each event that it hears of.
const { fsyncSync, openSync, writeSync } = require("node:fs");
const { QueueEvents, Worker } = require("bullmq");

const effects = openSync(process.env.POSTHASTE_EFFECTS, "a");
const heard = openSync(`${process.env.POSTHASTE_EFFECTS}.events`, "a");
const { hostname: host, port, pathname } = new URL(process.env.REDIS_URL);
// Waits for a server that is away.
const connection = { host, port: Number(port), db: Number(pathname.slice(1) || 0), maxRetriesPerRequest: null, retryStrategy: () => 100 };

const run = async (job) => {
  const line = { id: job.id, name: job.name, args: job.data, queue: job.queueName, opts: job.opts, attempts: job.attemptsMade };
  writeSync(effects, `${JSON.stringify(line)}\n`);
  fsyncSync(effects);
};
// A worker that sleeps is woken, or does not come in time for any test.
const work = (queue) => new Worker(queue, run, { connection, concurrency: 4, drainDelay: 300 });
const listen = (queue) => {
  const events = new QueueEvents(queue, { connection, lastEventId: "0-0" });
  for (const event of ["added", "waiting", "duplicated", "completed"])
    events.on(event, ({ jobId }) => writeSync(heard, `${JSON.stringify([event, jobId])}\n`));
  return events;
};
const all = process.env.POSTHASTE_QUEUES.split(",").flatMap((queue) => [work(queue), listen(queue)]);
for (const one of all) one.on("error", (error) => console.error(error.message));
Promise.all(all.map((one) => one.waitUntilReady())).then(() => console.log("ready"));
process.on("SIGTERM", () => Promise.all(all.map((one) => one.close())).then(() => process.exit(0)));
