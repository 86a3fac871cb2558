"""Takes mail into a maildir, and writes one line for each; what it is told in orders.json it does instead.

{"rcpt": "550 no such user"}      refuses recipients with this answer
{"data": "451 try again"}         refuses mails with this answer, after their text
{"delay": 2.5}                    waits before it answers a mail that it has taken
{"cut": true}                     closes the connection in the place of the answer, with the mail taken
"""

import asyncio
import json
import os
import sys
from email import message_from_bytes, policy
from mailbox import Maildir

import effects
from aiosmtpd.smtp import SMTP

maildir = Maildir(os.path.join(sys.argv[2], "mail"))


def orders():
    try:
        with open(os.path.join(sys.argv[2], "orders.json"), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if "rcpt" in orders():
            return orders()["rcpt"]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        now = orders()
        if "data" in now:
            return now["data"]
        mail = message_from_bytes(envelope.content, policy=policy.default)
        maildir.add(envelope.content)
        effects.record(
            id=mail["Message-ID"],
            name=envelope.mail_from,
            args=envelope.rcpt_tos,
            subject=mail["Subject"],
            headers=dict(mail.items()),
            text=mail.get_content(),
            raw=envelope.content.decode("utf-8", "replace"),
        )
        await asyncio.sleep(now.get("delay", 0))
        if now.get("cut"):
            server.transport.abort()
        return "250 OK"


async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(Handler(), hostname="localhost", enable_SMTPUTF8=True), "127.0.0.1", int(sys.argv[1]))
    print("ready", flush=True)
    await server.serve_forever()


asyncio.run(main())
