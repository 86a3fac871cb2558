// An effect that happens once for each delivery, with node-postgres.
//
// DATABASE_URL=postgres://… node receive.js DELIVERY_ID NAME CARD
import pg from "pg";

async function handle(client, deliveryId, name, card) {
  await client.query("BEGIN");
  try {
    const received = await client.query("SELECT posthaste.receive($1) AS is_first", [deliveryId]);
    const isFirst = received.rows[0].is_first;
    if (isFirst) {
      await client.query("INSERT INTO customer (name, remind_at) VALUES ($1, now())", [name]);
      charge(card);
    }
    await client.query("COMMIT");
    return isFirst;
  } catch (error) {
    await client.query("ROLLBACK"); // the receipt too: the next delivery is the first again
    throw error;
  }
}

function charge(card) {
  if (card === "declined") throw new Error("the card was declined");
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  console.log((await handle(client, ...process.argv.slice(2))) ? "first" : "again");
} finally {
  await client.end();
}
