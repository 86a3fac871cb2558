// Checks the signature of a request from `posthaste work --http` or a webhook route.
//
// WEBHOOK_SECRET=whsec_… node verify.js WEBHOOK_ID WEBHOOK_TIMESTAMP WEBHOOK_SIGNATURE < BODY
import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";

// `body` is the raw body, a Buffer, before a framework parses it.
function isSigned(secret, headers, body) {
  const timestamp = headers["webhook-timestamp"];
  if (!/^\d+$/.test(timestamp) || Math.abs(Date.now() / 1000 - Number(timestamp)) > 300) {
    return false; // an old request that somebody sends again
  }
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const hmac = createHmac("sha256", key).update(`${headers["webhook-id"]}.${timestamp}.`);
  const expected = Buffer.from(`v1,${hmac.update(body).digest("base64")}`);
  const signatures = headers["webhook-signature"].split(" "); // two while a secret is rotated
  return signatures.some((one) => {
    const signature = Buffer.from(one);
    return signature.length === expected.length && timingSafeEqual(signature, expected);
  });
}

const [id, timestamp, signature] = process.argv.slice(2);
const headers = {
  "webhook-id": id,
  "webhook-timestamp": timestamp,
  "webhook-signature": signature,
};
const signed = isSigned(process.env.WEBHOOK_SECRET, headers, readFileSync(0));
console.log(signed ? "signed" : "refused");
