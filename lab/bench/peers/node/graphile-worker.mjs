// graphile-worker, in the batches that its page about performance describes.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const packages = process.env.NODE_PATH;
const require = createRequire(`${packages}/`);
const { Logger, makeWorkerUtils, run, runMigrations } = require("graphile-worker");

const connectionString = process.env.DATABASE_URL;
// By itself it writes a line for each job.
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

export async function setup() {
  await runMigrations({ connectionString, logger });
  return JSON.parse(readFileSync(`${packages}/graphile-worker/package.json`)).version;
}

export async function producer(conns) {
  const utils = await makeWorkerUtils({ connectionString, maxPoolSize: conns, logger });
  return {
    one: (n) => utils.addJob("noop", { n }),
    many: (numbers) =>
      utils.addJobs(numbers.map((n) => ({ identifier: "noop", payload: { n } }))),
  };
}

export async function work(started) {
  const runner = await run({
    preset: {
      worker: {
        connectionString,
        concurrentJobs: 24,
        maxPoolSize: 10,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
    logger,
    noHandleSignals: true,
    parsedCronItems: [],
    taskList: { noop: async ({ n }) => started(n) },
  });
  return { stop: () => runner.stop() };
}
