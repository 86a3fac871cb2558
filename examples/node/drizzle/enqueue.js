// A customer and two jobs in one transaction, with Drizzle: one job by the function, one by an insert into the view.
//
// DATABASE_URL=postgres://… node enqueue.js NAME CARD
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { bigint, jsonb, pgSchema, pgTable, text, timestamp } from "drizzle-orm/pg-core";
import pg from "pg";

const customers = pgTable("customer", {
  id: bigint({ mode: "number" }).primaryKey().generatedAlwaysAsIdentity(),
  name: text().notNull(),
  remindAt: timestamp("remind_at", { withTimezone: true }).notNull(),
});

// Not exported from the schema of the application: its migrations leave the view alone.
const jobs = pgSchema("posthaste").table("job", {
  id: bigint({ mode: "bigint" }).primaryKey().generatedAlwaysAsIdentity(),
  name: text().notNull(),
  queue: text(),
  kwargs: jsonb(),
  scheduledAt: timestamp("scheduled_at", { withTimezone: true }),
});

async function signUp(db, name, card) {
  const remindAt = new Date(Date.now() + 24 * 60 * 60 * 1000);
  await db.transaction(async (tx) => {
    const [customer] = await tx.insert(customers).values({ name, remindAt }).returning();
    const kwargs = JSON.stringify({ customer: customer.id, to: name });
    const welcome = await tx.execute(
      sql`SELECT posthaste.enqueue(${"mail.welcome"}, ${kwargs}) AS id`,
    );
    const [reminder] = await tx
      .insert(jobs)
      .values({
        name: "mail.reminder",
        kwargs: { customer: customer.id },
        queue: "reminders",
        scheduledAt: remindAt,
      })
      .returning({ id: jobs.id });
    console.log(`${welcome.rows[0].id} ${reminder.id}`);
    charge(card); // what throws takes the customer and both jobs back
  });
}

function charge(card) {
  if (card === "declined") throw new Error("the card was declined");
}

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
try {
  await signUp(drizzle(pool), ...process.argv.slice(2));
} finally {
  await pool.end();
}
