// A customer and two jobs in one transaction, with node-postgres.
//
// DATABASE_URL=postgres://… node enqueue.js NAME CARD
import pg from "pg";

async function signUp(client, name, card) {
  const remindAt = new Date(Date.now() + 24 * 60 * 60 * 1000);
  await client.query("BEGIN");
  try {
    const customer = await one(
      client,
      "INSERT INTO customer (name, remind_at) VALUES ($1, $2) RETURNING id::integer",
      [name, remindAt],
    );
    const welcome = await one(client, "SELECT posthaste.enqueue($1, $2) AS id", [
      "mail.welcome",
      { customer: customer.id, to: name },
    ]);
    const reminder = await one(
      client,
      "SELECT posthaste.enqueue($1, $2, queue => $3, scheduled_at => $4) AS id",
      ["mail.reminder", { customer: customer.id }, "reminders", remindAt],
    );
    console.log(welcome.id, reminder.id); // strings: a bigint may be more than a number holds
    charge(card);
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK"); // the customer and both jobs
    throw error;
  }
}

async function one(client, text, values) {
  return (await client.query(text, values)).rows[0];
}

function charge(card) {
  if (card === "declined") throw new Error("the card was declined");
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  await signUp(client, ...process.argv.slice(2));
} finally {
  await client.end();
}
