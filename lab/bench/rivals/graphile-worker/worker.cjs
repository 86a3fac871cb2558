// Runs jobs, and says the number of each as its handler begins.
const { EventEmitter } = require("node:events");
const { writeSync } = require("node:fs");
const { Logger, run } = require("graphile-worker");

const events = new EventEmitter();
events.once("pool:listen:success", () => writeSync(1, "ready\n"));

run({
  connectionString: process.env.DATABASE_URL,
  concurrency: 8,
  events,
  // By itself it writes a line for each job, and looks for a table of periodic ones.
  logger: new Logger(() => (level, message) => {
    if (level === "error") console.error(message);
  }),
  parsedCronItems: [],
  taskList: { noop: async ({ n }) => void writeSync(1, `${n}\n`) },
}).then(
  (runner) => runner.promise,
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
