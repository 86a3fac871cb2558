// pg-boss, woken by NOTIFY, in batches that are fetched without a pause while they are full.
import { readFileSync } from "node:fs";

const packages = process.env.NODE_PATH;
const { PgBoss } = await import(`${packages}/pg-boss/dist/index.js`);

const QUEUE = "noop";

async function begin(options) {
  const boss = new PgBoss({ connectionString: process.env.DATABASE_URL, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

export async function setup() {
  const boss = await begin({ supervise: false, schedule: false });
  await boss.createQueue(QUEUE, { notify: true });
  await boss.stop({ graceful: false });
  return JSON.parse(readFileSync(`${packages}/pg-boss/package.json`)).version;
}

export async function producer(conns) {
  const boss = await begin({ max: conns, supervise: false, schedule: false });
  return {
    one: (n) => boss.send(QUEUE, { n }),
    many: (numbers) => boss.insert(QUEUE, numbers.map((n) => ({ data: { n } }))),
  };
}

export async function work(started) {
  const boss = await begin({ max: 8, schedule: false, useListenNotify: true });
  const options = {
    batchSize: 500,
    localConcurrency: 2,
    pollingIntervalSeconds: 0.5,
    burstWhenBatchFull: true,
  };
  await boss.work(QUEUE, options, async (jobs) => {
    for (const { data } of jobs) started(data.n);
  });
  return { stop: () => boss.stop({ graceful: true }) };
}
